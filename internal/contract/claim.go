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

// claimColumns are what [readClaims] reads, in this order.
const claimColumns = `c.id, c.fence, c.kind, c.payload, c.headers, c.attempts, c.max_attempts, c.crashes, c.priority, c.created_at, c.available_at, c.detail`

// readClaims reads the jobs of a claim. As a rule the columns are in PostgreSQL's binary format: to read them as they are costs a
// tenth of what the general way does.
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
		&j.Priority, &j.CreatedAt, &j.AvailableAt, &j.Place)
}

// claimTypes are the types of claimColumns.
var claimTypes = [...]uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.ByteaOID, pgtype.JSONBOID, pgtype.Int4OID, pgtype.Int4OID,
	pgtype.Int4OID, pgtype.Int4OID, pgtype.TimestamptzOID, pgtype.TimestamptzOID, pgtype.JSONBOID}

// isBinary reports whether some columns come as they are read here. Behind some poolers they come as text.
func isBinary(fields []pgconn.FieldDescription, types []uint32) bool {
	if len(fields) != len(types) {
		return false
	}
	for i, f := range fields {
		same := f.DataTypeOID == pgtype.TextOID || f.DataTypeOID == pgtype.JSONBOID // in both formats, but for a version before jsonb
		if f.DataTypeOID != types[i] || f.Format != pgx.BinaryFormatCode && !same {
			return false
		}
	}
	return true
}

var errClaim = errors.New("a column of job_claim is not what it should be")

// A claimReader reads the rows of one claim. Payloads are slices of blocks.
type claimReader struct {
	kinds []string // what is known, so that a kind is not a new string for each job
	block []byte
}

const (
	blockSize   = 16 << 10
	largeOctets = 2 << 10 // a payload that gets a block of its own
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
		err = json.Unmarshal(detail, &j.Place)
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

// payload copies what is valid until the next row only. An empty one is not nil.
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

// epoch is 1 January 2000, in microseconds since 1970.
const epoch = 946684800 * 1e6

func timeOf(micros int64) (time.Time, error) {
	if micros == math.MaxInt64 || micros == math.MinInt64 { // infinity
		return time.Time{}, errClaim
	}
	return time.UnixMicro(epoch + micros), nil
}

// jsonOf returns the text of a jsonb.
func jsonOf(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == 1 { // its version, in the binary format; no JSON begins so
		return raw[1:]
	}
	return raw
}

// exchangeTypes are the types of what [readExchange] reads: the outcome, and the columns of a claim.
var exchangeTypes = append([]uint32{pgtype.TextOID}, claimTypes[:]...)

// readExchange reads the answer of job_exchange.
func readExchange(rows pgx.Rows, queue string, kinds []string) (row JobExchangeRow, err error) {
	defer rows.Close()
	r := claimReader{kinds: kinds}
	binary, answered := isBinary(rows.FieldDescriptions(), exchangeTypes), false
	for rows.Next() {
		v := rows.RawValues()
		switch outcome := string(v[0]); outcome { // text is the same in both formats
		case "claimed":
			row.Jobs = append(row.Jobs, JobClaimRow{Queue: queue})
			if j := &row.Jobs[len(row.Jobs)-1]; binary {
				err = r.read(v[1:], j)
			} else {
				err = scanClaim(skipping{rows}, j)
			}
		case "ended":
			answered = true
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
	if err = rows.Err(); err == nil && !answered {
		err = errClaim
	}
	return row, err
}

// skipping scans all columns but the first.
type skipping struct{ pgx.Rows }

func (s skipping) Scan(into ...any) error { return s.Rows.Scan(append([]any{nil}, into...)...) }

// endTypes are the types of what [readEnds] reads: id, outcome, detail.
var endTypes = [...]uint32{pgtype.Int8OID, pgtype.TextOID, pgtype.JSONBOID}

// readEnds reads what became of some jobs.
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
