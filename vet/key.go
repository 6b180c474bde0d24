package vet

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

var keyWithoutHash = newAnalyzer("keywithouthash", "a-key-needs-a-payload-hash",
	"report idempotency keys whose response is stored or returned without a hash of the request\n\n"+
		"A client that reuses a key for another request gets the response of the first one, as if the second had been done.",
	func(r *reporter, p *program) {
		p.checkKeys(r)
		for _, fn := range p.funcs {
			p.checkFingerprints(r, fn)
		}
	})

var (
	keyTable    = regexp.MustCompile(`(?:^|_)idempot|(?:^|_)request_?keys?$|(?:^|_)(?:processed|dedup\w*)_requests?$|^(?:stored|cached|saved|http)_responses?$`)
	keyAsked    = regexp.MustCompile(`\bidempotency_?key\s*=`)
	keyCompared = regexp.MustCompile(`\b\w*key\w*\s*=|\b(?:request|idempotency)_id\s*=`)
	response    = regexp.MustCompile(`\b\w*(?:response|result|status_code|reply|answer|output|http_status)\w*\b|\bbody\b`)
	hashWords   = regexp.MustCompile(`hash|fingerprint|checksum|digest|sha256|sha_256|signature|etag|request_(?:body|payload|params|data)|payload|request_json|request_md5|md5|\brequest\b|\bparams\b|\*`)
	hashNames   = regexp.MustCompile(`(?i)hash|fingerprint|checksum|digest|sha256|sha1|md5`)
)

// checkKeys looks at the statements on tables of idempotency keys. If any statement of the package
// reads the hash of such a table, the table is silent.
func (p *program) checkKeys(r *reporter) {
	var found []event
	compared := map[string]bool{}
	for _, fn := range p.funcs {
		for _, e := range p.directOf(fn) {
			if e.what != isStmt {
				continue
			}
			for _, table := range append(append([]string(nil), e.sql.reads...), e.sql.writes()...) {
				if !keyTable.MatchString(table) && !keyAsked.MatchString(e.sql.where()) {
					continue
				}
				reads := !slices.Contains(e.sql.inserts, table) || strings.Contains(e.sql.text, "returning") || strings.Contains(e.sql.text, " where ")
				if reads && hashWords.MatchString(strings.ReplaceAll(e.sql.text, table, "")) {
					compared[table] = true
				}
				found = append(found, e)
			}
		}
	}
	for _, e := range found {
		for _, table := range append(append([]string(nil), e.sql.reads...), e.sql.inserts...) {
			if !keyTable.MatchString(table) && !keyAsked.MatchString(e.sql.where()) || compared[table] {
				continue
			}
			text := strings.ReplaceAll(e.sql.text, table, "")
			asks := e.sql.verb == "select" && keyCompared.MatchString(e.sql.where()) && response.MatchString(e.sql.selected())
			stores := slices.Contains(e.sql.inserts, table) && response.MatchString(text) && !hashWords.MatchString(text)
			if (asks || stores) && !hashes(e.at.Parent()) {
				what := "the stored response is found by the idempotency key alone"
				if !asks {
					what = "the response is stored under the idempotency key without a hash of the request"
				}
				r.report(e.pos(), what+": the same key with another payload gets the first response")
			}
		}
	}
}

// hashes reports whether a function, or the one around it, computes or names a hash.
func hashes(fn *ssa.Function) bool {
	for fn.Parent() != nil {
		fn = fn.Parent()
	}
	for _, part := range within(fn) {
		for _, param := range part.Params {
			if hashNames.MatchString(param.Name()) {
				return true
			}
		}
		for _, block := range part.Blocks {
			for _, instr := range block.Instrs {
				switch instr := instr.(type) {
				case ssa.CallInstruction:
					c := newCall(instr)
					if hashNames.MatchString(c.name) || strings.HasPrefix(c.pkg, "crypto/") {
						return true
					}
				case *ssa.FieldAddr:
					if hashNames.MatchString(fieldName(instr)) {
						return true
					}
				}
				for _, operand := range instr.Operands(nil) {
					switch v := (*operand).(type) {
					case *ssa.Global:
						if hashNames.MatchString(v.Name()) {
							return true
						}
					case *ssa.Function:
						if hashNames.MatchString(v.Name()) {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

const pawl = "github.com/pawl-go/pawl"

// checkFingerprints looks at fingerprints of Pawl that are the same for every payload.
func (p *program) checkFingerprints(r *reporter, fn *ssa.Function) {
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			at, is := instr.(ssa.CallInstruction)
			if !is {
				continue
			}
			c := newCall(at)
			if c.pkg != pawl || c.name != "FingerprintOf" && c.name != "FingerprintJSON" || len(c.args) == 0 {
				continue
			}
			if _, none := c.args[0].(*ssa.Const); none {
				continue // an intent without a payload
			}
			if constantBytes(c.args[0], keysOf(fn)) {
				r.report(at.Pos(), "the fingerprint is the same for every payload: the same key with another payload gets the first response")
			}
		}
	}
}

// keysOf returns the values that a function uses as keys of intents.
func keysOf(fn *ssa.Function) map[any]bool {
	keys := map[any]bool{}
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			store, is := instr.(*ssa.Store)
			if !is {
				continue
			}
			at, is := store.Addr.(*ssa.FieldAddr)
			if is && typeName(at.X.Type()) == pawl+".Intent" && fieldName(at) == "Key" {
				keys[rootOf(store.Val)] = true
			}
		}
	}
	return keys
}

// constantBytes reports whether bytes, or all parts of a variadic argument, are constant or the key
// itself.
func constantBytes(v ssa.Value, keys map[any]bool) bool {
	switch v := v.(type) {
	case *ssa.Const:
		return true
	case *ssa.Convert:
		return keys[rootOf(v.X)] || constantBytes(v.X, keys)
	case *ssa.ChangeType:
		return constantBytes(v.X, keys)
	case *ssa.Slice:
		a, is := v.X.(*ssa.Alloc)
		if !is {
			return false
		}
		stored := 0
		for _, at := range inside(a) {
			for _, s := range storesTo(at) {
				if !constantBytes(s.Val, keys) {
					return false
				}
				stored++
			}
		}
		return stored > 0
	}
	return false
}
