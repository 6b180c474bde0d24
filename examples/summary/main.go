// Command summary has documents summarized by a language model, each paid once. A message names a
// document, whose row has a status. The call takes long and costs money, so the row is claimed
// first, and the call is a step. "summary provider" runs a stub of the model that counts and bills.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/step"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// Schema has the documents, four of them to try it out. No column is Pawl's.
const Schema = `
create table if not exists document (
  id            int primary key,
  body          text not null,
  summary       text,
  status        text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'error')),
  claimed_at    timestamptz,
  completed_at  timestamptz,
  last_error    text,
  attempt_count int not null default 0,
  created_at    timestamptz not null default clock_timestamp()
);
insert into document (id, body)
values (1, 'A long report'), (2, 'A longer one'), (3, 'The longest of all'), (4, 'One more')
    on conflict do nothing`

func main() {
	if len(os.Args) > 1 && os.Args[1] == "provider" {
		service.Main(provide)
		return
	}
	service.Main(run)
}

func run(ctx context.Context) error {
	pool, cfg, err := service.FromEnv(ctx)
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, Schema); err != nil {
		return err
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	source, err := pawlsqs.Open(ctx, awssqs.NewFromConfig(aws), os.Getenv("QUEUE"), pawlsqs.Config{})
	if err != nil {
		return err
	}
	stuckAfter, err := time.ParseDuration(cmp.Or(os.Getenv("STUCK_AFTER"), "30s"))
	if err != nil {
		return err
	}
	rows, err := guard.New(pool, guard.Table{Name: "document", Result: "summary", CreatedAt: "created_at"})
	if err != nil {
		return err
	}
	app, err := service.New(pool, cfg)
	if err != nil {
		return err
	}
	s := summarizer{pool, rows, &http.Client{Transport: &step.Transport{}}, cmp.Or(os.Getenv("PROVIDER"), "http://"+providerAddress)}
	app.Sweeper(rows, guard.SweeperConfig{Every: stuckAfter / 6, StuckAfter: stuckAfter}, s.summarize)
	app.Consumer(consumer.Config{Name: "summaries", Source: source, Handler: consumer.Trigger(
		func(ctx context.Context, m consumer.Message[named]) error {
			return s.summarize(ctx, m.Value.Document.String())
		})})
	log.Printf("ready for messages of queue %s", os.Getenv("QUEUE"))
	return app.Run(ctx)
}

// A named is the payload of a message. A payload that does not decode becomes a dead letter.
type named struct {
	Document json.Number `json:"document"`
}

type summarizer struct {
	pool     *pgxpool.Pool
	rows     *guard.Rows
	client   *http.Client
	provider string
}

// summarize claims the document, has it summarized in a step, and completes it with the summary. No
// transaction is open during the call. After a crash, the next attempt sends the same key.
func (s summarizer) summarize(ctx context.Context, id string) error {
	claimed, err := s.rows.Claim(ctx, id)
	if err != nil {
		return err
	}
	var body string
	if err := s.pool.QueryRow(ctx, "select body from document where id = $1", id).Scan(&body); err != nil {
		return claimed.Fail(ctx, err)
	}
	summary, err := step.Run(ctx, s.pool, claimed, step.Step{
		Name: "summary", Recovery: step.Keyed(24 * time.Hour), Request: body, Provider: "model", Timeout: 20 * time.Second,
	}, func(ctx context.Context, _ step.Call) (string, error) { return s.ask(ctx, body) })
	if err != nil {
		return claimed.Fail(ctx, err)
	}
	if err := claimed.Commit(ctx, func(context.Context, pgx.Tx) (any, error) { return summary, nil }); err != nil {
		return err
	}
	log.Printf("document %s is completed", id)
	return nil
}

// ask asks the provider. The transport of the client sends the key.
func (s summarizer) ask(ctx context.Context, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.provider+"/summaries", bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if err := step.HTTPStatus(response.StatusCode, response.Status); err != nil {
		return "", err
	}
	var answer struct{ Summary string }
	err = json.NewDecoder(response.Body).Decode(&answer)
	return answer.Summary, err
}
