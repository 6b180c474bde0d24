package contract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// claimColumns lists the columns that [readClaims] reads, in this order.
const claimColumns = `c.id, c.fence, c.kind, c.payload, c.headers, c.attempts, c.max_attempts, c.crashes, c.priority, c.created_at, c.available_at, c.detail`

// readClaims reads the jobs of a claim. Normally the columns are in PostgreSQL's binary format.
// Decoding them here costs a tenth of the general way.
func readClaims(rows pgx.Rows, queue string, kinds []string) (jobs []JobClaimRow, err error) {
	defer rows.Close()
	r := claimReader{kinds: kinds}
	read := func(j *JobClaimRow) error { return scanClaim(rows, j) }
	if isBinary(rows.FieldDescriptions(), claimTypes[:]) {
		read = func(j *JobClaimRow) error { return r.read(rows.RawValues(), j) }
	}
	for rows.Next() {
		jobs = append(jobs, JobClaimRow{Queue: queue})
		if err := read(&jobs[len(jobs)-1]); err != nil {
			return nil, err
		}
	}
	return jobs, rows.Err()
}

func scanClaim(rows pgx.Rows, j *JobClaimRow) error {
	return rows.Scan(&j.ID, &j.Fence, &j.Kind, &j.Payload, &j.Headers, &j.Attempts, &j.MaxAttempts, &j.Crashes,
		&j.Priority, &j.CreatedAt, &j.AvailableAt, &j.LanePosition)
}

// claimTypes holds the types of claimColumns.
var claimTypes = [...]uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.ByteaOID, pgtype.JSONBOID, pgtype.Int4OID, pgtype.Int4OID,
	pgtype.Int4OID, pgtype.Int4OID, pgtype.TimestamptzOID, pgtype.TimestamptzOID, pgtype.JSONBOID}

// isBinary reports whether the columns have the given types and formats that can be decoded here.
// Behind some poolers they come as text.
func isBinary(fields []pgconn.FieldDescription, types []uint32) bool {
	if len(fields) != len(types) {
		return false
	}
	for i, f := range fields {
		// equal in both formats, except for a version byte before jsonb
		same := f.DataTypeOID == pgtype.TextOID || f.DataTypeOID == pgtype.JSONBOID
		if f.DataTypeOID != types[i] || f.Format != pgx.BinaryFormatCode && !same {
			return false
		}
	}
	return true
}

var errClaim = errors.New("a column of job_claim is not what it should be")

// A claimReader reads the rows of one claim. Payloads are slices of shared blocks.
type claimReader struct {
	kinds []string // known kinds, so that a job needs no new string for its kind
	block []byte
}

const (
	blockSize   = 16 << 10
	largeOctets = 2 << 10 // payloads of this size or more get their own allocation
)

func (r *claimReader) read(v [][]byte, j *JobClaimRow) error {
	for i, width := range [...]int{8, 8, -1, -1, -1, 4, 4, 4, 4, 8, 8, -1} {
		if width >= 0 && len(v[i]) != width {
			return errClaim
		}
	}
	eight := func(i int) int64 { return int64(binary.BigEndian.Uint64(v[i])) }
	four := func(i int) int { return int(int32(binary.BigEndian.Uint32(v[i]))) }
	j.ID, j.Fence = eight(0), eight(1)
	j.Kind, j.Payload = r.kind(v[2]), r.payload(v[3])
	j.Attempts, j.MaxAttempts, j.Crashes, j.Priority = four(5), four(6), four(7), four(8)
	var err error
	if j.CreatedAt, err = timeOf(eight(9)); err == nil {
		j.AvailableAt, err = timeOf(eight(10))
	}
	if headers := jsonOf(v[4]); err == nil && headers != nil {
		err = json.Unmarshal(headers, &j.Headers)
	}
	if detail := jsonOf(v[11]); err == nil && len(detail) > len("{}") {
		err = json.Unmarshal(detail, &j.LanePosition)
	}
	return err
}

func (r *claimReader) kind(raw []byte) string {
	for _, k := range r.kinds {
		if k == string(raw) {
			return k
		}
	}
	return string(raw)
}

// payload copies a payload, because raw is only valid until the next row. An empty payload is not
// nil.
func (r *claimReader) payload(raw []byte) []byte {
	if len(raw) >= largeOctets {
		return append([]byte(nil), raw...)
	}
	if r.block == nil || cap(r.block)-len(r.block) < len(raw) {
		r.block = make([]byte, 0, blockSize)
	}
	at := len(r.block)
	r.block = append(r.block, raw...)
	return r.block[at:len(r.block):len(r.block)]
}

// epoch is 1 January 2000 in microseconds since 1970.
const epoch = 946684800 * 1e6

func timeOf(micros int64) (time.Time, error) {
	if micros == math.MaxInt64 || micros == math.MinInt64 { // infinity
		return time.Time{}, errClaim
	}
	return time.UnixMicro(epoch + micros), nil
}

// jsonOf returns the text of a jsonb value.
func jsonOf(raw []byte) []byte {
	// version byte of the binary format; no JSON text begins with it
	if len(raw) > 0 && raw[0] == 1 {
		return raw[1:]
	}
	return raw
}

// exchangeTypes holds the types that [readExchange] reads: the outcome and the columns of a claim.
var exchangeTypes = append([]uint32{pgtype.TextOID}, claimTypes[:]...)

// readExchange reads the rows of job_exchange.
func readExchange(rows pgx.Rows, queue string, kinds []string) (row JobExchangeRow, err error) {
	defer rows.Close()
	r := claimReader{kinds: kinds}
	binary, ended := isBinary(rows.FieldDescriptions(), exchangeTypes), false
	for rows.Next() {
		v := rows.RawValues()
		switch outcome := string(v[0]); outcome { // text is equal in both formats
		case "claimed":
			row.Jobs = append(row.Jobs, JobClaimRow{Queue: queue})
			if j := &row.Jobs[len(row.Jobs)-1]; binary {
				err = r.read(v[1:], j)
			} else {
				err = scanClaim(skipping{rows}, j)
			}
		case "ended":
			ended = true
			var detail struct {
				Lanes
				Finished int `json:"finished"`
			}
			err = json.Unmarshal(jsonOf(v[len(v)-1]), &detail)
			row.Finished, row.Lanes = detail.Finished, detail.Lanes
		case "stale", "locked":
			end := JobEndRow{Outcome: outcome}
			err = rows.Scan(nil, &end.ID, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
			row.Failed = append(row.Failed, end)
		case "lease_lost":
			row.LeaseLost = true
		default:
			err = errClaim
		}
		if err != nil {
			return JobExchangeRow{}, err
		}
	}
	if err = rows.Err(); err == nil && !ended {
		err = errClaim
	}
	return row, err
}

// skipping scans all columns except the first.
type skipping struct{ pgx.Rows }

func (s skipping) Scan(into ...any) error { return s.Rows.Scan(append([]any{nil}, into...)...) }

// endTypes holds the types that [readEnds] reads: id, outcome, detail.
var endTypes = [...]uint32{pgtype.Int8OID, pgtype.TextOID, pgtype.JSONBOID}

// readEnds reads the outcomes of several jobs.
func readEnds(rows pgx.Rows) (ends []JobEndRow, err error) {
	if !isBinary(rows.FieldDescriptions(), endTypes[:]) {
		return pgx.CollectRows(rows, jobEnd)
	}
	defer rows.Close()
	for rows.Next() {
		v := rows.RawValues()
		if len(v[0]) != 8 {
			return nil, errClaim
		}
		end := JobEndRow{ID: int64(binary.BigEndian.Uint64(v[0])), Outcome: "finished"}
		if string(v[1]) != end.Outcome {
			end.Outcome = string(v[1])
		}
		if detail := jsonOf(v[2]); len(detail) > len("{}") {
			if err := json.Unmarshal(detail, &end.Lanes); err != nil {
				return nil, err
			}
		}
		ends = append(ends, end)
	}
	return ends, rows.Err()
}
