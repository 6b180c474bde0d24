package contract

import "context"

// A StaleWrite is an attempt that was rejected because another worker had taken over its work.
type StaleWrite struct {
	Scope, Key string // of a job: its queue and its id
	Fence      int64
	Worker     string // the process
}

// StaleWriteAdd calls pawl_v1.stale_write_add for up to 1000 rejections. kind is job or command.
func StaleWriteAdd(ctx context.Context, db DB, kind string, all ...StaleWrite) error {
	var scopes, keys, workers []string
	var fences []int64
	for _, w := range all {
		scopes, keys, fences, workers = append(scopes, w.Scope), append(keys, w.Key), append(fences, w.Fence), append(workers, w.Worker)
	}
	var outcome string
	return one(ctx, db, "stale_write.add", "select a.outcome from pawl_v1.stale_write_add($1, $2, $3, $4, $5) as a",
		[]any{kind, scopes, keys, fences, workers}, &outcome)
}
