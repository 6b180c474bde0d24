package handlers

import "os"

// OnFsync makes f the function that syncs files.
func OnFsync(f func(*os.File) error) { fsync = f }
