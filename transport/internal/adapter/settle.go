package adapter

import (
	"fmt"

	"github.com/pawl-go/pawl"
)

// Receipts returns the handles of the valid receipts that ours accepts, and an error that counts
// the others.
func Receipts[H any](op string, rs []pawl.Receipt, ours func(H) bool) (held []H, refused error) {
	for _, r := range rs {
		if h, is := r.Handle().(H); is && r.Valid() && ours(h) {
			held = append(held, h)
		}
	}
	if n := len(rs) - len(held); n > 0 {
		refused = &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid,
			Err:  fmt.Errorf("%d of %d receipts refused: not from a commit of a delivery of this source", n, len(rs)),
			Hint: "acknowledge with the receipts that the commit returned"}
	}
	return held, refused
}

// Deliveries returns the handles of the deliveries that ours accepts, and an error that counts the
// others.
func Deliveries[H any](op string, ds []pawl.Delivery, ours func(H) bool) (held []H, refused error) {
	for _, d := range ds {
		if h, is := d.Handle.(H); is && ours(h) {
			held = append(held, h)
		}
	}
	if n := len(ds) - len(held); n > 0 {
		refused = BadArgument(op, "%d of %d deliveries are not of this source", n, len(ds))
	}
	return held, refused
}

// By groups values by a key.
func By[K comparable, V any](all []V, key func(V) K) map[K][]V {
	groups := map[K][]V{}
	for _, v := range all {
		groups[key(v)] = append(groups[key(v)], v)
	}
	return groups
}
