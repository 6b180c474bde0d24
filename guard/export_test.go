package guard

import "time"

// Age makes the recorded high marks older.
func (s *Sweeper) Age(by time.Duration) {
	for i := range s.seen {
		s.seen[i].at = s.seen[i].at.Add(-by)
	}
}
