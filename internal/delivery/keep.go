package delivery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Record is a delivery as it arrived.
type Record struct {
	Payload    []byte         // exact bytes, at most 4 MiB
	Headers    map[string]any // headers that may be kept
	VerifiedBy string         // what authenticated the sender; "" if nothing did
	Storage    Replay
}

// A Replay says how a kept delivery is stored when an operator replays it.
type Replay struct {
	Queue, Kind      string
	Headers          map[string]any // of the job; "attributes" is set to the headers of the Record
	Lane, LanePolicy string         // as of [Lane]; "" for none
	MaxAttempts      int            // as of [Storage]
	Semantic         string         // a second key, claimed with [TakeFor]; "" for none
}

// QueueKeep adds a statement to a batch that keeps the delivery of intent as it arrived. Send it
// once, in the transaction of the claim.
func QueueKeep(b *pgx.Batch, intent pawl.Intent, r Record) {
	storing := contract.Storage(r.Storage)
	contract.DeliveryKeepStep(contract.DeliveryKeepArgs{Consumer: intent.Scope, Key: intent.Key,
		Payload: r.Payload, Headers: r.Headers, VerifiedBy: r.VerifiedBy, Hash: intent.Fingerprint, Storage: &storing})(b)
}

// PurgeKept deletes a consumer's kept deliveries by age, like [Purge].
func PurgeKept(ctx context.Context, db pawl.DB, b PurgeBatch) (Purged, error) {
	return purged(contract.DeliveryPurge(ctx, db, contract.PurgeArgs(b)))
}
