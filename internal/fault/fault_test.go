package fault

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Points share one table, so these tests do not run in parallel.

func TestAt_IsInertUntilArmed(t *testing.T) {
	Disarm()
	if err := At("x.before"); err != nil {
		t.Fatal(err)
	}
	if err := Arm("x.before=fail@2"); err != nil {
		t.Fatal(err)
	}
	defer Disarm()
	for hit, want := range []bool{false, false, true, false} {
		if got := errors.Is(At("x.before"), ErrInjected); got != want {
			t.Errorf("hit %d: failed = %v, want %v", hit, got, want)
		}
	}
	if err := At("y"); err != nil {
		t.Errorf("a point that is not armed failed: %v", err)
	}
}

func TestAt_Delays(t *testing.T) {
	if err := Arm("slow=delay:30ms"); err != nil {
		t.Fatal(err)
	}
	defer Disarm()
	start := time.Now()
	_ = At("slow")
	if waited := time.Since(start); waited < 30*time.Millisecond {
		t.Errorf("waited %v", waited)
	}
}

func TestAt_KillsItsProcess(t *testing.T) {
	if os.Getenv("FAULT_CHILD") != "" {
		_ = Arm("end=kill")
		_ = At("end")
		os.Exit(0) // not reached
	}
	child := exec.Command(os.Args[0], "-test.run=TestAt_KillsItsProcess")
	child.Env = append(os.Environ(), "FAULT_CHILD=1")
	var exit *exec.ExitError
	if err := child.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want SIGKILL", err)
	}
}

func TestArm_RefusesNonsense(t *testing.T) {
	for _, spec := range []string{"", "x", "=kill", "x=explode", "x=delay", "x=delay:-1s", "x=kill@-1", "x=kill@soon"} {
		if err := Arm(spec); err == nil {
			t.Errorf("accepted %q", spec)
		}
	}
	Disarm()
}
