package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/text"
)

// The check reads a sample and says nothing in doubt: a wrong hint costs more than a missed one. A
// scope with a key that came twice in seven days has keys that survive a retry, and is left out.
const (
	leastKeys  = 20               // keys with a time in them
	leastSends = 5                // payloads that came under several keys
	mostCopies = 10               // a payload or stem with more keys names no intent
	retriesEnd = 10 * time.Minute // copies further apart are no retries
)

const seeBadKeys = ": docs/guides/checklist.md, Bad keys"

// checkKeys looks for keys that a retry does not repeat.
func checkKeys(ctx context.Context, db pawl.DB) (all []Finding, err error) {
	samples, err := catalog.KeySamples(ctx, db)
	for len(samples) > 0 {
		first := samples[0]
		n := slices.IndexFunc(samples, func(s catalog.KeySample) bool { return s.Table != first.Table || s.Scope != first.Scope })
		if n < 0 {
			n = len(samples)
		}
		if !first.Again {
			all = append(all, hintAt(samples[:n])...)
		}
		samples = samples[n:]
	}
	return all, err
}

// hintAt returns at most one finding about the keys of one scope. They are in order of their times.
func hintAt(keys []catalog.KeySample) []Finding {
	whose := map[string]string{"inbox": "consumer", "command": "commands of scope", "job_key": "jobs of queue"}[keys[0].Table] + " " + keys[0].Scope
	sends := repeatedPayloads(keys)
	if n, such := growing(keys, sends); n > 0 {
		return []Finding{{
			What: fmt.Sprintf("keys of %s grow: %s came within ten minutes under keys that only count or lengthen, such as %s", whose, text.Plural(n, "payload", "payloads"), such),
			Why:  "each attempt seems to make a key of its own: no retry is recognised, so each can take effect",
			Fix:  "take the number of the attempt out of the key, and make it once from what the request means" + seeBadKeys,
		}}
	}
	if n, such := timed(keys); n > 0 {
		return []Finding{{
			What: fmt.Sprintf("keys of %s contain the time at which they came: %d of %d sampled, such as %s", whose, n, len(keys), such),
			Why:  "if the producer reads the clock at each attempt, a retry has another key, is not recognised and can take effect again. No key of this sample is known to have come twice",
			Fix:  "make the key once, without the clock" + seeBadKeys + ". If the time is made once and kept for retries, skip this check",
		}}
	}
	if n, such := unrecognised(keys, sends); n > 0 {
		return []Finding{{
			What: fmt.Sprintf("keys of %s are never seen twice, and %s came again within ten minutes under another key, such as %s", whose, text.Plural(n, "payload", "payloads"), such),
			Why:  "the producer seems to make a new key at each attempt: no retry is recognised, so each can take effect",
			Fix:  "make the key once, before the first attempt, and keep it for retries" + seeBadKeys,
		}}
	}
	return nil
}

// repeatedPayloads returns the keys of each payload that came under two to ten keys.
func repeatedPayloads(keys []catalog.KeySample) (all [][]catalog.KeySample) {
	byHash := map[string][]catalog.KeySample{}
	for _, k := range keys {
		byHash[string(k.Hash)] = append(byHash[string(k.Hash)], k)
	}
	for _, k := range keys {
		if same := byHash[string(k.Hash)]; len(same) >= 2 && len(same) <= mostCopies {
			all = append(all, same)
		}
		delete(byHash, string(k.Hash))
	}
	return all
}

// quick reports whether each copy came soon after the one before it. Copies of a job that were
// enqueued together are no retries.
func quick(sends []catalog.KeySample) bool {
	for i := 1; i < len(sends); i++ {
		pause := sends[i].At.Sub(sends[i-1].At)
		if pause > retriesEnd || sends[i].Table == "job_key" && pause < time.Second {
			return false
		}
	}
	return true
}

var counted = regexp.MustCompile(`^(.*[^0-9])([0-9]{1,4})$`)

// growing counts payloads whose keys only count (order-42/1, order-42/2) or lengthen (a, a-retry).
// It returns 0 if too few payloads came again. It also does if keys of this form come with
// different payloads: those may be positions of an order, or versions of a document.
func growing(keys []catalog.KeySample, sends [][]catalog.KeySample) (n int, such string) {
	stems := map[string][]catalog.KeySample{}
	for _, k := range keys {
		if m := counted.FindStringSubmatch(k.Key); m != nil {
			stems[m[1]] = append(stems[m[1]], k)
		}
	}
	others := 0
	for _, of := range stems {
		if slices.ContainsFunc(of, func(k catalog.KeySample) bool { return string(k.Hash) != string(of[0].Hash) }) {
			others++
		}
	}
	for _, same := range sends {
		if !quick(same) || !counts(same, stems) && !lengthens(same) {
			continue
		}
		n++
		such = example(same)
	}
	if n < leastSends || others*10 > n {
		return 0, ""
	}
	return n, such
}

// counts reports whether the keys end in n, n+1, n+2 after a stem that no other payload has.
func counts(same []catalog.KeySample, stems map[string][]catalog.KeySample) bool {
	var stem string
	var numbers []int
	for _, k := range same {
		m := counted.FindStringSubmatch(k.Key)
		if m == nil || stem != "" && m[1] != stem {
			return false
		}
		stem = m[1]
		number, _ := strconv.Atoi(m[2])
		numbers = append(numbers, number)
	}
	for i := 1; i < len(numbers); i++ {
		if numbers[i] != numbers[i-1]+1 {
			return false
		}
	}
	return len(stems[stem]) == len(same)
}

// lengthens reports whether each key begins with the one before it. Two names that one job has, and
// another that it causes, look the same in a queue.
func lengthens(same []catalog.KeySample) bool {
	for i := 1; i < len(same); i++ {
		if same[i].Table == "job_key" || !strings.HasPrefix(same[i].Key, same[i-1].Key) {
			return false
		}
	}
	return true
}

// unrecognised counts payloads that came again under another key. It returns 0 if a payload comes
// again later than a retry does, since payloads then name no intent, and if the sample spans too
// little time to tell. Jobs may have one payload and several keys on purpose.
func unrecognised(keys []catalog.KeySample, sends [][]catalog.KeySample) (n int, such string) {
	if keys[0].Table == "job_key" || keys[len(keys)-1].At.Sub(keys[0].At) < 12*retriesEnd {
		return 0, ""
	}
	for _, same := range sends {
		if !quick(same) {
			return 0, ""
		}
		n++
		such = example(same)
	}
	if n < leastSends || 2*n > len(keys)/2 {
		return 0, ""
	}
	return n, such
}

// Times as producers write them, apart from letters and digits. Identifiers that contain a time in
// another form (UUIDv7, ULID, KSUID, snowflake, ObjectId) are made once, and do not match.
var (
	unixTime = regexp.MustCompile(`(?:^|[^0-9A-Za-z])([0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13})(?:[^0-9A-Za-z]|$)`)
	isoTime  = regexp.MustCompile(`(?:^|[^0-9A-Za-z])([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?|[0-9]{8}T[0-9]{6}(?:[.,][0-9]{1,9})?Z?)(?:[^0-9A-Za-z]|$)`)
)

// timeIn returns the time in a key and the rest of it: the time of the row, or up to ten minutes
// before.
func timeIn(k catalog.KeySample) (at time.Time, stem string, found bool) {
	for _, form := range []*regexp.Regexp{unixTime, isoTime} {
		where := form.FindStringSubmatchIndex(k.Key)
		if where == nil {
			continue
		}
		at, known := timeOf(k.Key[where[2]:where[3]])
		if known && at.After(k.At.Add(-retriesEnd)) && at.Before(k.At.Add(time.Minute)) {
			return at, k.Key[:where[2]] + "\x00" + k.Key[where[3]:], true
		}
	}
	return at, "", false
}

func timeOf(text string) (time.Time, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if n >= 1e12 {
			n /= 1000
		}
		return time.Unix(0, int64(n*1e9)), true
	}
	text = strings.Replace(text, " ", "T", 1)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999", "20060102T150405.999999999Z", "20060102T150405.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

var (
	alnums   = regexp.MustCompile(`[0-9A-Za-z]+`)
	plain    = regexp.MustCompile(`^(?:[0-9]{1,12}|[A-Za-z]{1,40})$`)
	madeOnce = regexp.MustCompile("^\x00[^0-9A-Za-z]*[0-9]+$")
)

// timed counts keys that are a name or a number with the time at which they came. It returns 0
//   - if few of the keys are, or their times are whole minutes: such a key names a period
//   - if the rest looks random, or is a counter behind the time, as in the ids of Redis streams:
//     such an identifier is made once
//   - if the same rest comes with several times and payloads, as readings of a sensor and versions
//     of a document do: then the time is part of what the key names
func timed(keys []catalog.KeySample) (n int, such string) {
	stems := map[string][]catalog.KeySample{}
	whole, random, once := 0, 0, 0
	for _, k := range keys {
		at, stem, found := timeIn(k)
		if !found {
			continue
		}
		n++
		such = quoted(k.Key)
		stems[stem] = append(stems[stem], k)
		if at.Nanosecond() == 0 && at.Second() == 0 {
			whole++
		}
		if madeOnce.MatchString(stem) {
			once++
		}
		for _, word := range alnums.FindAllString(stem, -1) {
			if !plain.MatchString(word) {
				random++
				break
			}
		}
	}
	if n < leastKeys || n*10 < len(keys)*9 || 2*whole > n || random*10 > n || once*10 > n {
		return 0, ""
	}
	if len(stems) == 1 {
		for stem := range stems {
			if strings.ContainsAny(stem, "0123456789") {
				return 0, ""
			}
		}
		return n, such
	}
	others := 0
	for _, of := range stems {
		if slices.ContainsFunc(of, func(k catalog.KeySample) bool { return string(k.Hash) != string(of[0].Hash) }) {
			others++
		}
	}
	if others > 1 {
		return 0, ""
	}
	return n, such
}

func example(same []catalog.KeySample) string {
	return quoted(same[0].Key) + " and " + quoted(same[1].Key)
}

func quoted(key string) string { return strconv.Quote(text.Characters(key, 60)) }
