// Package jcs produces the canonical form of a JSON document (RFC 8785, JSON Canonicalization
// Scheme). It is used for fingerprints only.
package jcs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that a hostile document cannot exhaust the stack.
const maxDepth = 1000

// maxSafeInteger is the largest integer that a double represents unambiguously (ECMA-262,
// Number.MAX_SAFE_INTEGER).
const maxSafeInteger = 1<<53 - 1

// Canonical returns doc in canonical form. It refuses documents whose canonical form would be
// ambiguous, as I-JSON (RFC 7493) does: repeated members, invalid UTF-8, lone surrogates, and
// numbers that a double would round.
func Canonical(doc []byte) ([]byte, error) {
	if !utf8.Valid(doc) {
		return nil, errors.New("not valid UTF-8")
	}
	if err := refuseLoneSurrogates(doc); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var out bytes.Buffer
	if err := value(d, &out, 0); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return out.Bytes(), nil
}

func value(d *json.Decoder, out *bytes.Buffer, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return object(d, out, depth)
		}
		return array(d, out, depth)
	case json.Number:
		return number(string(t), out)
	case string:
		quote(t, out)
	case bool:
		out.WriteString(strconv.FormatBool(t))
	case nil:
		out.WriteString("null")
	}
	return nil
}

func array(d *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	for first := true; d.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		if err := value(d, out, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return closing(d)
}

func object(d *json.Decoder, out *bytes.Buffer, depth int) error {
	type member struct {
		name  string
		units []uint16 // RFC 8785 sorts by UTF-16 code units
		value []byte
	}
	var members []member
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		name := token.(string)
		var v bytes.Buffer
		if err := value(d, &v, depth+1); err != nil {
			return err
		}
		members = append(members, member{name, utf16.Encode([]rune(name)), v.Bytes()})
	}
	if err := closing(d); err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b member) int { return slices.Compare(a.units, b.units) })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if m.name == members[i-1].name {
				return fmt.Errorf("member %q appears twice", m.name)
			}
			out.WriteByte(',')
		}
		quote(m.name, out)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return nil
}

// closing consumes the delimiter that More saw.
func closing(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// number writes a double as ECMAScript does (RFC 8785, 3.2.2.3): the shortest digits that
// round-trip, with an exponent from 1e21 up and below 1e-6. It refuses a number whose digits differ
// from those. Otherwise 12345678901234567.89 and 12345678901234567.12 would be equal.
func number(text string, out *bytes.Buffer) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("number %s is outside the range of a double", text)
	}
	if !strings.ContainsAny(text, ".eE") && math.Abs(f) > maxSafeInteger {
		return fmt.Errorf("integer %s is beyond ±2^53 and would be rounded", text)
	}
	if sameDecimal := decimalOf(text) == decimalOf(strconv.FormatFloat(f, 'e', -1, 64)); !sameDecimal {
		return fmt.Errorf("number %s would be rounded by a double", text)
	}
	if f == 0 {
		out.WriteByte('0') // -0 too
		return nil
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		out.WriteString(strconv.FormatFloat(f, 'f', -1, 64))
		return nil
	}
	digits := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(digits, "e")
	sign := exponent[:1]
	out.WriteString(mantissa + "e" + sign + strings.TrimLeft(exponent[1:], "0"))
	return nil
}

// A decimal is 0.DIGITS times ten to the power of exponent. The digits neither begin nor end with a
// zero, so equal numbers have equal decimals.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// decimalOf parses a JSON number exactly. If the exponent does not fit an int, the result equals no
// other decimal.
func decimalOf(text string) decimal {
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent := len(digits) - len(fraction)
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return decimal{} // -0 too
	}
	if power != "" {
		n, err := strconv.Atoi(power)
		if err != nil {
			return decimal{digits: "?" + text}
		}
		exponent += n
	}
	return decimal{unsigned != mantissa, digits, exponent}
}

// quote writes a string with the few escapes that RFC 8785, 3.2.2.2 allows.
func quote(s string, out *bytes.Buffer) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	out.WriteByte('"')
	for _, r := range s {
		if e, ok := short[r]; ok {
			out.WriteString(e)
		} else if r < 0x20 {
			fmt.Fprintf(out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// refuseLoneSurrogates rejects \uD800 to \uDFFF escapes that are not a pair. encoding/json replaces
// them with U+FFFD, so two different strings could share a fingerprint.
func refuseLoneSurrogates(doc []byte) error {
	for i := 0; i+1 < len(doc); i++ {
		if doc[i] != '\\' {
			continue
		}
		r, ok := escapedUnit(doc[i:])
		if !ok {
			i++ // skip the escaped character, which may be a backslash
			continue
		}
		i += 5
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escapedUnit(doc[i+1:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return fmt.Errorf("lone surrogate \\u%04x", r)
		}
		i += 6
	}
	return nil
}

func escapedUnit(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	return rune(n), err == nil
}
