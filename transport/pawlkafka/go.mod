module github.com/pawl-go/pawl/transport/pawlkafka

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/pawl-go/pawl v0.0.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kadm v1.19.0
)
