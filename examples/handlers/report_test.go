package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/examples/handlers"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// reportEnv holds the errand of a child process as JSON.
const reportEnv = "PAWL_TEST_REPORT"

// An errand tells a child process to write the report of one message.
type errand struct {
	URL, Folder string
	Dies        string // where it kills itself
}

const whole = "the report of hello, first half\nand second half\n"

// at kills the process if it dies at this place.
func (e errand) at(place string) {
	if place == e.Dies {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	}
}

func (e errand) render(w io.Writer, payload []byte) error {
	e.at("write.before")
	_, err := fmt.Fprintf(w, "the report of %s, first half\n", payload)
	e.at("write.middle")
	_, err2 := io.WriteString(w, "and second half\n")
	e.at("write.after")
	return errors.Join(err, err2)
}

func (e errand) sync(f *os.File) error {
	what := "fsync"
	if f.Name() == e.Folder {
		what = "folder"
	}
	e.at(what + ".before")
	err := f.Sync()
	e.at(what + ".after")
	return err
}

// TestReportProcess is the child process of TestWriteReport_Killed.
func TestReportProcess(t *testing.T) {
	var e errand
	if text := os.Getenv(reportEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if err := fault.Arm("attempt.commit.before=kill@" + map[bool]string{true: "0", false: "1000000"}[e.Dies == "commit.before"]); err != nil {
		t.Fatal(err)
	}
	handlers.OnFsync(e.sync)
	pool, err := pgxpool.New(t.Context(), e.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	report(t, pool, e, pawl.Hooks{OnEvent: func(_ context.Context, event pawl.Event) {
		if event.Kind == pawl.EventSucceeded {
			e.at("commit.after")
		}
	}})
}

// report runs a consumer until the message is done, and both of its deliveries are acknowledged.
func report(t *testing.T, pool *pgxpool.Pool, e errand, hooks pawl.Hooks) {
	t.Helper()
	box := &pawltest.Source{}
	d := pawl.Delivery{Key: "../report/1", Payload: []byte("hello")}
	box.Send(d, d)
	c, err := consumer.New(pool, consumer.Config{Name: "reports", Source: box, RetryConcurrency: 1, Hooks: hooks,
		Handler: handlers.WriteReport(e.Folder, e.render).With(consumer.Policy{Backoff: job.Backoff{Base: time.Millisecond}})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	patience.Until(t, "the report is written", func() bool {
		// The pauses after a death are no part of the promise.
		_, err := pool.Exec(t.Context(), "update pawl.job set available_at = clock_timestamp() where status = 'pending' and available_at > clock_timestamp()")
		var done bool
		err2 := pool.QueryRow(t.Context(), "select exists (select from report) and not exists (select from pawl.job)").Scan(&done)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return done && box.Open() == 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A process is killed at each step of writing a file. The file is there whole or not at all. The
// next attempt leaves one file, one row and nothing else.
func TestWriteReport_Killed(t *testing.T) {
	t.Parallel()
	for i, place := range []string{"write.before", "write.middle", "write.after", "fsync.before", "fsync.after", "folder.before", "folder.after", "commit.before", "commit.after"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			e := errand{URL: pawltest.URL(t, handlers.Schema), Folder: t.TempDir(), Dies: place}
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			child := exec.Command(os.Args[0], "-test.run", "^TestReportProcess$")
			child.Env = append(os.Environ(), reportEnv+"="+string(text))
			out, err := child.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%v\n%s", err, out)
			}
			renamed := i >= 5
			if files := visible(t, e.Folder); renamed != (len(files) == 1) {
				t.Errorf("after the death there are %q", files)
			}
			pool, err := pgxpool.New(t.Context(), e.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			// The death is known.
			if _, err := pool.Exec(t.Context(), "update pawl.worker set seen_at = clock_timestamp() - interval '1 day'"); err != nil {
				t.Fatal(err)
			}
			again := errand{URL: e.URL, Folder: e.Folder}
			report(t, pool, again, pawl.Hooks{})
			if files := visible(t, e.Folder); len(files) != 1 {
				t.Errorf("in the end there are %q", files)
			}
			all, err := os.ReadDir(e.Folder)
			if err != nil || len(all) != 1 {
				t.Errorf("files are left: %v, %v", all, err)
			}
			var rows int
			if err := pool.QueryRow(t.Context(), "select count(*) from report where key = '../report/1'").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("%d rows, %v", rows, err)
			}
		})
	}
}

// visible returns the files that readers see, and fails the test if one is not whole.
func visible(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if strings.HasPrefix(entry.Name(), ".tmp-") {
			continue
		}
		names = append(names, entry.Name())
		if text, err := os.ReadFile(filepath.Join(folder, entry.Name())); err != nil || string(text) != whole {
			t.Errorf("%s: %q, %v", entry.Name(), text, err)
		}
	}
	return names
}

// A power failure cannot be tested here, so the order of the calls is: the file is synced before it
// has its name, and the folder after that.
func TestWriteReport_SyncsFileThenFolder(t *testing.T) {
	pool, folder := pawltest.DB(t, handlers.Schema), t.TempDir()
	var said []string
	handlers.OnFsync(func(f *os.File) error {
		what := "file"
		if f.Name() == folder {
			what = "folder"
		} else if text, err := os.ReadFile(f.Name()); err != nil || string(text) != whole {
			t.Errorf("synced %q, %v", text, err)
		}
		var rows int
		if err := pool.QueryRow(t.Context(), "select count(*) from report").Scan(&rows); err != nil {
			t.Error(err)
		}
		said = append(said, fmt.Sprintf("%s, %d named, %d rows", what, len(visible(t, folder)), rows))
		return f.Sync()
	})
	defer handlers.OnFsync((*os.File).Sync)
	report(t, pool, errand{Folder: folder}, pawl.Hooks{})
	if want := []string{"file, 0 named, 0 rows", "folder, 1 named, 0 rows"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

// If a step fails, the message is not done, and the file is not there in part.
func TestWriteReport_FullDisk(t *testing.T) {
	pool, folder := pawltest.DB(t, handlers.Schema), t.TempDir()
	full := true
	handlers.OnFsync(func(f *os.File) error {
		if full && f.Name() != folder {
			full = false
			return syscall.ENOSPC
		}
		return f.Sync()
	})
	defer handlers.OnFsync((*os.File).Sync)
	var failed []error
	report(t, pool, errand{Folder: folder}, pawl.Hooks{OnEvent: func(_ context.Context, event pawl.Event) {
		if event.Kind == pawl.EventRetryable {
			if files := visible(t, folder); len(files) > 0 {
				t.Errorf("there are %q", files)
			}
			failed = append(failed, event.Err)
		}
	}})
	if len(failed) != 1 || !errors.Is(failed[0], syscall.ENOSPC) || len(visible(t, folder)) != 1 {
		t.Errorf("failed with %v", failed)
	}
}
