package pawlkafka

import "context"

// Commit commits what is settled now, as the next tick would.
func Commit(ctx context.Context, s *Source) error {
	return s.commit(ctx, "kafka.commit", everyPartition, false)
}
