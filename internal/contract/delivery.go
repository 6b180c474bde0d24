package contract

import (
	"context"
	"time"
)

// DeliveryKeepArgs are the arguments of delivery_keep.
type DeliveryKeepArgs struct {
	Consumer, MessageID string
	Body                []byte
	Headers             map[string]any
	VerifiedBy          string
}

// DeliveryKeepStep calls pawl_v1.delivery_keep.
func DeliveryKeepStep(a DeliveryKeepArgs) Step {
	o := Options{}
	set(o, "verified_by", a.VerifiedBy)
	if len(a.Headers) > 0 {
		o["headers"] = a.Headers
	}
	return step("delivery.keep", "select k.outcome from pawl_v1.delivery_keep($1, $2, $3, $4::jsonb) as k",
		[]any{a.Consumer, a.MessageID, octets(a.Body), o.text()}, new(string))
}

// DeliveryPurge calls pawl_v1.delivery_purge and returns how many were deleted.
func DeliveryPurge(ctx context.Context, db DB, consumer string, olderThan time.Duration, limit int) (purged int, err error) {
	err = one(ctx, db, "delivery.purge", "select p.purged from pawl_v1.delivery_purge($1, $2, $3) as p",
		[]any{consumer, olderThan.Milliseconds(), limit}, &purged)
	return purged, err
}
