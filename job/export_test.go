package job

import "time"

// AbandonAfter shortens the patience with handlers that ignore their context.
func (w *Worker) AbandonAfter(d time.Duration) { w.abandon = d }
