package pawl_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

// The same order is the same intent at every request. Another payload under its key is refused.
func ExampleIntent() {
	intent := func(payload string) pawl.Intent {
		return pawl.Intent{Scope: "orders/acme", Key: "order-17", Fingerprint: pawl.FingerprintOf([]byte(payload))}
	}
	first := intent("1250 cents")
	fmt.Println(first == intent("1250 cents"), first == intent("9999 cents"))
	fmt.Println(errors.Is(pawl.Intent{Scope: "orders/acme"}.Validate(), pawl.ErrKeyInvalid))
	// Output:
	// true false
	// true
}

// Different parts never make the same key.
func ExampleKey() {
	fmt.Println(pawl.Key("ab", "c"))
	fmt.Println(pawl.Key("a", "bc"))
	// Output:
	// 2:ab1:c
	// 1:a2:bc
}

// A caller decides by an error's class, not by its text.
func ExampleClassify() {
	for _, err := range []error{
		&pgconn.PgError{Code: "40001"},
		&pgconn.PgError{Code: "23514"},
		&pawl.Error{Op: "command.commit", Code: pawl.CodeCommitUnknown},
		pawl.Final(errors.New("the card has expired")),
	} {
		c := pawl.Classify(err)
		fmt.Printf("retry %s, %s; retryable %v, may have happened %v, final %v\n", c.Retry, c.Redo,
			pawl.Retryable(err), pawl.MayHaveHappened(err), pawl.IsFinal(err))
	}
	// Output:
	// retry yes, the whole transaction; retryable true, may have happened false, final false
	// retry no, nothing; retryable false, may have happened false, final true
	// retry depends, a claim of the same key; retryable false, may have happened true, final false
	// retry no, nothing; retryable false, may have happened false, final true
}

// Hooks see each event. Here one counts events by kind, and another looks for dead letters.
func ExampleHooks() {
	var counters pawl.Counters
	alarm := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventFailed {
			fmt.Println("dead letter:", e.Scope, e.Key, e.Err)
		}
	}}
	// These are the Hooks of a consumer, a worker or a service.
	hooks := pawl.Join(counters.Hooks(), alarm)

	ctx := context.Background() // the parts of Pawl emit events such as these
	hooks.Emit(ctx, pawl.Event{Kind: pawl.EventSucceeded, Scope: "orders", Key: "order-17"})
	hooks.Emit(ctx, pawl.Event{Kind: pawl.EventFailed, Scope: "orders", Key: "order-18", Err: errors.New("no such item")})
	fmt.Println(counters.String())
	// Output:
	// dead letter: orders order-18 no such item
	// failed=1 succeeded=1
}
