package delivery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
)

// A Record is a delivery as it came.
type Record struct {
	Payload    []byte         // exact octets, at most 4 MiB
	Headers    map[string]any // those that may be kept
	VerifiedBy string         // what proved who sent it; "" for nothing
	Storage    Replay
}

// A Replay says how a delivery that is kept is stored if an operator replays it.
type Replay struct {
	Queue, Kind      string
	Headers          map[string]any // of the job; "attributes" will be the headers of the Record
	Lane, LanePolicy string         // as of [Lane]; "" for none
	MaxAttempts      int            // as of [Storage]
	Semantic         string         // a second key under which it is claimed, with [TakeFor]; "" for none
}

// QueueKeep adds to a batch that the delivery of intent is kept as it came, once, in the transaction that claims it.
func QueueKeep(b *pgx.Batch, intent pawl.Intent, r Record) {
	storing := contract.Storage(r.Storage)
	contract.DeliveryKeepStep(contract.DeliveryKeepArgs{Consumer: intent.Scope, Key: intent.Key,
		Payload: r.Payload, Headers: r.Headers, VerifiedBy: r.VerifiedBy, Hash: intent.Fingerprint, Storage: &storing})(b)
}

// PurgeKept deletes what was kept of a consumer's deliveries, by age, as [Purge] does.
func PurgeKept(ctx context.Context, db pawl.DB, b PurgeBatch) (Purged, error) {
	return purged(contract.DeliveryPurge(ctx, db, contract.PurgeArgs(b)))
}
