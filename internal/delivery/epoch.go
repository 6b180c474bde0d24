package delivery

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/watched"
)

// An Epoch says which inbox was read, and what was deleted from it. While its value stays the same,
// a row that the inbox had is still there, unless it was received at the time of the last purged
// row or earlier.
type Epoch struct {
	value          string
	forgottenUntil []byte // nil: nothing was purged
	// ReadOn is set if the server replicates synchronously. Then txn.Replicated with ReadOn proves
	// that the rows are replicated.
	ReadOn string
}

// The value changes when commits may have been lost: after a promotion, a restore, a restart or a
// crash another server run answers. It also changes if the database or the table is replaced, and
// when an operator forgets a delivery of the consumer.
const epochSQL = `select pg_catalog.concat_ws(' ', s.system_identifier, ` + watched.Run + `, d.oid,
         pg_catalog.pg_relation_filenode('pawl.inbox'::pg_catalog.regclass), coalesce(f.by_hand, 0)),
       f.until, ` + watched.ReadOn + `
  from pg_catalog.pg_control_system() as s
 cross join pg_catalog.pg_database as d
  left join pawl.forgotten as f on f.consumer operator(pg_catalog.=) $1
 where d.datname operator(pg_catalog.=) pg_catalog.current_database()`

func (e *Epoch) scan(row pgx.Row) error {
	var until *time.Time
	err := row.Scan(&e.value, &until, &e.ReadOn)
	e.forgottenUntil = nil
	if until != nil {
		e.forgottenUntil = micros(*until)
	}
	return err
}

// ReadEpoch reads the epoch of a consumer's inbox.
func ReadEpoch(ctx context.Context, db pawl.DB, consumer string) (e Epoch, err error) {
	err = e.scan(db.QueryRow(ctx, epochSQL, consumer))
	return e, pawl.Wrap("inbox.epoch", err)
}

// QueueEpoch adds [ReadEpoch] to the batch of a claim. Queue it before the claim. If an operator
// forgets the delivery between the two, the mark must have the older epoch.
func QueueEpoch(b *pgx.Batch, consumer string, e *Epoch) {
	b.Queue(epochSQL, consumer).QueryRow(e.scan)
}

// Mark returns octets that prove later, by [Epoch.Proves], that the inbox has a row of the intent.
// The row must be committed, and e must have been read in the transaction of its claim, before it.
func (e Epoch) Mark(intent pawl.Intent, receivedAt time.Time) []byte {
	received := micros(receivedAt)
	digest := e.digest(intent, received)
	return append(received, digest[:]...)
}

// Proves reports whether a mark proves that the inbox has a row of the intent. Read e after the
// delivery has arrived. A mark of another key, payload, consumer or epoch proves nothing, and
// neither does the mark of a row that may be purged.
func (e Epoch) Proves(mark []byte, intent pawl.Intent) bool {
	if len(mark) != timeSize+len(pawl.Fingerprint{}) || e.value == "" {
		return false
	}
	received := mark[:timeSize:timeSize]
	digest := e.digest(intent, received)
	return string(mark[timeSize:]) == string(digest[:]) && string(received) > string(e.forgottenUntil)
}

func (e Epoch) digest(intent pawl.Intent, received []byte) pawl.Fingerprint {
	return pawl.FingerprintOf([]byte(e.value), []byte(intent.Scope), []byte(intent.Key), intent.Fingerprint[:], received)
}

// timeSize is the size of a time in a mark.
const timeSize = 8

// micros returns a time as octets that sort as times do. The database's times have microseconds.
func micros(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
}
