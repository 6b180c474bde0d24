module github.com/pawl-go/pawl/cmd/pawl

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/pawl-go/pawl v0.0.0
	github.com/spf13/cobra v1.10.2
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/pawl-go/pawl => ../..

replace github.com/pawl-go/pawl/transport/sqs => ../../transport/sqs
