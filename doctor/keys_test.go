package doctor_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schema"
)

// A sender makes the keys and the payload of the ith message, which it sends at a time. A second
// key is that of a retry, with the same payload.
type sender func(i int, at time.Time, r *rand.Rand) (payload string, keys []string)

// sample returns what a table has of 300 messages, as the doctor samples them: the newest, and
// others from three hours before.
func sample(table string, send sender) []catalog.KeySample {
	return sampleOf(table, send, 3*time.Hour)
}

func sampleOf(table string, send sender, gap time.Duration) (all []catalog.KeySample) {
	r := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 11, 28, 9, 0, 3, 123456789, time.UTC)
	for i := range 300 {
		at := begin.Add(time.Duration(i) * 4 * time.Second).Add(time.Duration(r.IntN(900)) * time.Millisecond)
		if i >= 150 {
			at = at.Add(gap)
		}
		payload, keys := send(i, at.Add(-time.Duration(r.IntN(2000))*time.Millisecond), r)
		hash := sha256.Sum256([]byte(payload))
		for n, key := range keys {
			all = append(all, catalog.KeySample{Table: table, Scope: "orders", Key: key, Hash: hash[:], At: at.Add(time.Duration(n) * 20 * time.Second)})
		}
	}
	slices.SortStableFunc(all, func(a, b catalog.KeySample) int { return a.At.Compare(b.At) })
	return all
}

func random(r *rand.Rand, n int) string {
	octets := make([]byte, n)
	for i := range octets {
		octets[i] = byte(r.UintN(256))
	}
	return hex.EncodeToString(octets)
}

func uuid(h string) string {
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

func order(i int) string { return fmt.Sprintf(`{"order": %d}`, i) }

// again retries each fourth message under the keys that next makes.
func again(i int, first string, next ...string) []string {
	if i%4 > 0 {
		return []string{first}
	}
	return append([]string{first}, next...)
}

// Keys that a retry does not repeat are named, with an example and the way out.
func TestKeys_BadOnesAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send  sender
		parts []string
	}{
		"unix seconds behind the order": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("order-%d-%d", i, at.Unix())}
		}, []string{"contain the time", "300 of 300", `"order-299-`}},
		"unix milliseconds before the order": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("%d/order/%d", at.UnixMilli(), i)}
		}, []string{"contain the time"}},
		"only milliseconds": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprint(at.UnixMilli())}
		}, []string{"contain the time"}},
		"a name and seconds with a fraction": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("charge:%d.%06d", at.Unix(), at.Nanosecond()/1000)}
		}, []string{"contain the time"}},
		"ISO": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("%d@%s", i, at.Format(time.RFC3339))}
		}, []string{"contain the time"}},
		"ISO with a zone and a fraction": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("order/%d/%s", i, at.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano))}
		}, []string{"contain the time"}},
		"ISO, basic": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return order(i), []string{fmt.Sprintf("order-%d-%s", i, at.Format("20060102T150405Z"))}
		}, []string{"contain the time"}},
		"a time, and retries under another": {func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			key := func(after int) string { return fmt.Sprintf("order-%d-%d", i, at.Unix()+int64(after)) }
			return order(i), again(i, key(0), key(20))
		}, []string{"contain the time"}},
		"the number of the attempt": {func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			key := func(n int) string { return fmt.Sprintf("order-%d/%d", i, n) }
			return order(i), again(i, key(1), key(2), key(3))
		}, []string{"grow: 75 payloads", `"order-296/1" and "order-296/2"`}},
		"a suffix at each attempt": {func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			return order(i), again(i, fmt.Sprintf("order-%d", i), fmt.Sprintf("order-%d-retry", i), fmt.Sprintf("order-%d-retry-retry", i))
		}, []string{"grow: 75 payloads"}},
		"random at each attempt": {func(i int, _ time.Time, r *rand.Rand) (string, []string) {
			return order(i), again(i, uuid(random(r, 16)), uuid(random(r, 16)))
		}, []string{"never seen twice", "75 payloads came again"}},
	} {
		for _, table := range []string{"inbox", "command", "job_key"} {
			if table == "job_key" && (strings.Contains(name, "random") || strings.Contains(name, "suffix")) {
				continue // one payload may have several jobs
			}
			t.Run(table+", "+name, func(t *testing.T) {
				t.Parallel()
				found := doctor.HintAt(sample(table, c.send))
				if len(found) != 1 {
					t.Fatalf("%+v", found)
				}
				text := found[0].What + found[0].Why + found[0].Fix
				for _, part := range append(c.parts, "orders", "docs/guides/checklist.md") {
					if !strings.Contains(text, part) {
						t.Errorf("no %q in %+v", part, found[0])
					}
				}
			})
		}
	}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func letters(r *rand.Rand, alphabet string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

// Good keys of all kinds are not named, also if they contain a time or grow.
func TestKeys_GoodOnesAreNot(t *testing.T) {
	t.Parallel()
	plain := func(key func(i int, at time.Time, r *rand.Rand) string) sender {
		return func(i int, at time.Time, r *rand.Rand) (string, []string) { return order(i), []string{key(i, at, r)} }
	}
	for name, send := range map[string]sender{
		"UUIDv4": plain(func(_ int, _ time.Time, r *rand.Rand) string { return uuid(random(r, 16)) }),
		"UUIDv7": plain(func(_ int, at time.Time, r *rand.Rand) string {
			return uuid(fmt.Sprintf("%012x7%s", at.UnixMilli(), random(r, 10)[1:]))
		}),
		"UUIDv1": plain(func(_ int, at time.Time, r *rand.Rand) string {
			h := fmt.Sprintf("%015x", (at.Unix()+12219292800)*1e7)
			return fmt.Sprintf("%s-%s-1%s-9abc-%s", h[7:], h[3:7], h[:3], random(r, 6))
		}),
		"ULID": plain(func(_ int, at time.Time, r *rand.Rand) string {
			const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
			var head [10]byte
			for i, ms := 9, at.UnixMilli(); i >= 0; i, ms = i-1, ms/32 {
				head[i] = crockford[ms%32]
			}
			return string(head[:]) + letters(r, crockford, 16)
		}),
		"KSUID": plain(func(_ int, _ time.Time, r *rand.Rand) string { return "2p" + letters(r, base62, 25) }),
		"snowflake": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprint((at.UnixMilli()-1288834974657)<<22 | int64(i%4096))
		}),
		"ObjectId": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("%08x%s%06x", at.Unix(), "a1b2c3d4e5", i)
		}),
		"nanoid": plain(func(_ int, _ time.Time, r *rand.Rand) string { return letters(r, base62+"_-", 21) }),
		"Stripe": plain(func(_ int, _ time.Time, r *rand.Rand) string { return "evt_1" + letters(r, base62, 23) }),
		"a hash of the content": plain(func(i int, _ time.Time, _ *rand.Rand) string {
			sum := sha256.Sum256([]byte(order(i)))
			return "sha256:" + hex.EncodeToString(sum[:])
		}),
		"base64": plain(func(_ int, _ time.Time, r *rand.Rand) string {
			return base64.StdEncoding.EncodeToString([]byte(letters(r, base62, 18)))
		}),
		"a time and a random part, made once": plain(func(_ int, at time.Time, r *rand.Rand) string {
			return fmt.Sprintf("req_%d_%s", at.UnixMilli(), "x8f3"+letters(r, base62, 5))
		}),
		"a Redis stream":                   plain(func(i int, at time.Time, _ *rand.Rand) string { return fmt.Sprintf("%d-%d", at.UnixMilli(), i%3) }),
		"seconds and a counter, made once": plain(func(i int, at time.Time, _ *rand.Rand) string { return fmt.Sprintf("%d-%d", at.Unix(), i) }),
		"a Kafka position":                 plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprintf("orders/3/%d", 100000+i) }),
		"order numbers":                    plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprint(1000 + i) }),
		"order numbers of ten digits":      plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprint(1_000_000_000 + i) }),
		"order numbers with a prefix":      plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprintf("A-%d", 90+i) }),
		"order numbers with the date": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("%s-%04d", at.Format("20060102"), i)
		}),
		"order numbers of each tenant": plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprintf("tenant-%d/%d", i%40, i/40) }),
		"EAN":                          plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprint(4006381333931 + int64(i)) }),
		"a transition":                 plain(func(i int, _ time.Time, _ *rand.Rand) string { return fmt.Sprintf("order-%d/paid", i) }),
		"a day": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("report/%d/%s", i, at.Format(time.DateOnly))
		}),
		"a month": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("invoice/%d/%s", i, at.Format("2006-01"))
		}),
		"a minute as unix seconds": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("reindex/%d/%d", i, at.Truncate(time.Minute).Unix())
		}),
		"an hour": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("usage/%d/%s", i, at.Truncate(time.Hour).Format(time.RFC3339))
		}),
		"a time long past": plain(func(i int, at time.Time, _ *rand.Rand) string {
			return fmt.Sprintf("order-%d-%d", i, at.Add(-48*time.Hour).Unix())
		}),
		"readings of sensors": func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprintf("%d, %d", i, at.Unix()), []string{fmt.Sprintf("sensor-%d/%d", i%50, at.Unix())}
		},
		"readings of one sensor": func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprint(i), []string{fmt.Sprintf("sensor-7/%s", at.Format(time.RFC3339))}
		},
		"readings that are often equal": func(i int, _ time.Time, r *rand.Rand) (string, []string) {
			return fmt.Sprintf("%d degrees", i*7%100), []string{uuid(random(r, 16))}
		},
		"versions of a document": func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprint("version ", i), []string{fmt.Sprintf("doc-%d/v%d", i/5, i%5)}
		},
		"changes, by their time": func(i int, at time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprint("change ", i), []string{fmt.Sprintf("doc-%d-%d", i/5, at.UnixMilli())}
		},
		"positions of an order": func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprintf("order %d, article %d", i/3, i%3*i%2), []string{fmt.Sprintf("order-%d/%d", i/3, i%3+1)}
		},
		"reminders on purpose, days apart": func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			return order(i % 150), []string{fmt.Sprintf("reminder/%d/%d", i%150, i/150+1)}
		},
		"amounts in pairs, by order numbers": func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprint(i/2, " EUR"), []string{fmt.Sprintf("A-%d", i)}
		},
		"no payload": func(_ int, _ time.Time, r *rand.Rand) (string, []string) {
			return "", []string{uuid(random(r, 16))}
		},
		"numbered beats of each tenant": func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
			return fmt.Sprint("tenant ", i%20), []string{fmt.Sprintf("tenant-%d/%d", i%20, i/20)}
		},
		"amounts, by order numbers of each tenant": func(i int, _ time.Time, r *rand.Rand) (string, []string) {
			return fmt.Sprint(r.IntN(120)*100, " EUR"), []string{fmt.Sprintf("tenant-%d/%d", i%40, i/40)}
		},
	} {
		for _, table := range []string{"inbox", "command", "job_key"} {
			t.Run(table+", "+name, func(t *testing.T) {
				t.Parallel()
				for _, gap := range []time.Duration{0, 3 * time.Hour} {
					if gap == 0 && strings.HasSuffix(name, "apart") {
						continue
					}
					if found := doctor.HintAt(sampleOf(table, send, gap)); len(found) > 0 {
						t.Errorf("%+v", found)
					}
				}
			})
		}
	}
}

// A job and those that it causes may have one payload, and keys that begin alike.
func TestKeys_JobsOfOnePayload(t *testing.T) {
	t.Parallel()
	found := doctor.HintAt(sample("job_key", func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
		return order(i), []string{fmt.Sprintf("order-%d", i), fmt.Sprintf("order-%d/mail", i)}
	}))
	if len(found) > 0 {
		t.Errorf("%+v", found)
	}
	all := sample("job_key", func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
		return order(i), []string{fmt.Sprintf("order-%d/1", i), fmt.Sprintf("order-%d/2", i)}
	})
	slices.SortFunc(all, func(a, b catalog.KeySample) int { return strings.Compare(a.Key, b.Key) })
	for i := range all {
		all[i].At = all[i/2*2].At // enqueued together
	}
	if found := doctor.HintAt(all); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// In a short sample a payload that comes again may be a retry, or a payload that names no intent.
func TestKeys_ShortSampleSaysNothing(t *testing.T) {
	t.Parallel()
	found := doctor.HintAt(sampleOf("inbox", func(i int, _ time.Time, r *rand.Rand) (string, []string) {
		return order(i), again(i, uuid(random(r, 16)), uuid(random(r, 16)))
	}, 0))
	if len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// keysOnly makes the doctor check keys alone.
func keysOnly() (l doctor.Limits) {
	for _, name := range doctor.Checks() {
		if name != "keys" && name != "contract" {
			l.Skip = append(l.Skip, name)
		}
	}
	return l
}

// plant writes the keys of a sender into a table, as if they had come now.
func plant(t *testing.T, pool *pgxpool.Pool, table, scope string, send sender) {
	t.Helper()
	all := sample(table, send)
	shift := time.Since(all[len(all)-1].At)
	all = sample(table, func(i int, at time.Time, r *rand.Rand) (string, []string) { return send(i, at.Add(shift), r) })
	var keys []string
	var hashes [][]byte
	var times []time.Time
	for _, k := range all {
		keys, hashes, times = append(keys, k.Key), append(hashes, k.Hash), append(times, k.At.Add(shift))
	}
	statement := map[string]string{
		"inbox":   "insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select $1, g.key, g.hash, g.at, g.at",
		"command": "insert into pawl.command (scope, key, hash, created_at, expires_at, status) select $1, g.key, g.hash, g.at, g.at + interval '1 day', 'succeeded'",
		"job_key": "insert into pawl.job_key (queue, key, hash, created_at, expires_at, job_id) select $1, g.key, g.hash, g.at, g.at + interval '1 day', 1",
	}[table] + " from unnest($2::text[], $3::bytea[], $4::timestamptz[]) as g (key, hash, at)"
	if _, err := pool.Exec(t.Context(), statement, scope, keys, hashes, times); err != nil {
		t.Fatal(err)
	}
}

func stamped(i int, at time.Time, _ *rand.Rand) (string, []string) {
	return order(i), []string{fmt.Sprintf("order-%d-%d", i, at.Unix())}
}

// The doctor, with the rights of pawl_reader, finds bad keys of consumers, commands and jobs, and
// is silent about scopes whose keys are known to come twice.
func TestKeys_Doctor(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	hints := func() (about []string) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		if _, err := tx.Exec(t.Context(), "set local role pawl_reader"); err != nil {
			t.Fatal(err)
		}
		d, err := doctor.Diagnose(t.Context(), tx, keysOnly())
		if err != nil || len(d.Unchecked) > 0 {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, f := range d.Findings {
			what, _, _ := strings.Cut(strings.TrimPrefix(f.What, "keys of "), " contain")
			about = append(about, what)
		}
		return about
	}
	want := func(about ...string) {
		t.Helper()
		if got := hints(); !slices.Equal(got, about) {
			t.Errorf("hints about %q, want %q", got, about)
		}
	}
	exec(schema.Roles())
	want()
	good := func(i int, _ time.Time, _ *rand.Rand) (string, []string) {
		return order(i), []string{fmt.Sprintf("order-%d", i)}
	}
	for _, table := range []string{"inbox", "command", "job_key"} {
		plant(t, pool, table, "good", good)
		plant(t, pool, table, "stamps", stamped)
	}
	plant(t, pool, "inbox", "another", stamped)
	exec("insert into pawl.inbox (consumer, key, hash, processed_at) select 'own', 'pawl/semantic/order-' || n || '-' || extract(epoch from now())::bigint, sha256(''), now() from generate_series(1, 100) as n")
	exec("insert into pawl.schedule (name, next_at, every_ms, queue, kind, payload) values ('often', now(), 100, 'ticks', 'k', '')")
	exec(`insert into pawl.job_key (queue, key, hash, created_at, expires_at, job_id)
		select 'ticks', 'schedule/often/' || to_char(now() - n * interval '1.1 seconds', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), sha256(n::text::bytea), now() - n * interval '1.1 seconds', now() + interval '1 day', 1
		  from generate_series(1, 100) as n`)
	want("commands of scope stamps", "consumer another", "consumer stamps", "jobs of queue stamps")
	exec("select pawl_v1.rollup_add('consumer', '{another}', '{duplicate_skipped}', '{1}')")
	exec("insert into pawl.replay (scope, replays) values ('stamps', 1)")
	want("consumer stamps", "jobs of queue stamps")
	exec("select pawl_v1.rollup_add('consumer', '{stamps}', '{succeeded}', '{9}')")
	want("consumer stamps", "jobs of queue stamps")
}

// The cost of the sample does not depend on the sizes of the tables: it reads along indexes.
func TestKeys_CostIsFlat(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	pages := func(rows int, check bool) (n int) {
		t.Helper()
		for _, statement := range []string{
			"insert into pawl.inbox (consumer, key, hash, received_at, processed_at) select 'c' || n % 7, n::text, sha256(n::text::bytea), now() - n * interval '1 second', now() from generate_series(1, $1::int) as n on conflict do nothing",
			"insert into pawl.command (scope, key, hash, created_at, expires_at, status) select 's' || n % 7, n::text, sha256(n::text::bytea), now() - n * interval '1 second', now() + interval '1 day', 'succeeded' from generate_series(1, $1::int) as n on conflict do nothing",
			"insert into pawl.job_key (queue, key, hash, created_at, expires_at, job_id) select 'q' || n % 7, n::text, sha256(n::text::bytea), now() - n * interval '1 second', now() + interval '1 day', 1 from generate_series(1, $1::int) as n on conflict do nothing",
		} {
			if _, err := pool.Exec(t.Context(), statement, rows); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range []string{"inbox", "command", "job_key"} {
			if _, err := pool.Exec(t.Context(), "vacuum analyze pawl."+table); err != nil {
				t.Fatal(err)
			}
		}
		var plan []struct {
			Plan map[string]any `json:"Plan"`
		}
		var text []byte
		if err := pool.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+catalog.KeySamplesSQL).Scan(&text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &plan); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"inbox", "command", "job_key"} {
			if check && fullScans(plan[0].Plan, table) {
				t.Errorf("with %d rows it does not walk an index of %s", rows, table)
			}
		}
		return int(plan[0].Plan["Shared Hit Blocks"].(float64) + plan[0].Plan["Shared Read Blocks"].(float64))
	}
	few, many := pages(15_000, false), pages(90_000, true)
	t.Logf("%d pages with 15,000 rows a table, %d with 90,000", few, many)
	if many > 2*few {
		t.Errorf("%d pages with 15,000 rows a table, %d with six times as many", few, many)
	}
}

func fullScans(node map[string]any, table string) bool {
	if node["Relation Name"] == table && (node["Node Type"] == "Seq Scan" || strings.HasPrefix(fmt.Sprint(node["Node Type"]), "Bitmap")) {
		return true
	}
	children, _ := node["Plans"].([]any)
	return slices.ContainsFunc(children, func(child any) bool { return fullScans(child.(map[string]any), table) })
}
