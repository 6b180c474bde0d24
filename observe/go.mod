module github.com/pawl-go/pawl/observe

go 1.26.0

require (
	github.com/aws/aws-sdk-go-v2 v1.47.6
	github.com/aws/aws-sdk-go-v2/credentials v1.20.14
	github.com/aws/aws-sdk-go-v2/service/sqs v1.52.9
	github.com/jackc/pgx/v5 v5.12.0
	github.com/pawl-go/pawl v0.0.0
	github.com/pawl-go/pawl/transport/sqs v0.0.0
	github.com/prometheus/client_golang v1.25.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/metric v1.47.0
	go.opentelemetry.io/otel/sdk v1.47.0
	go.opentelemetry.io/otel/sdk/metric v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
)

replace (
	github.com/pawl-go/pawl => ..
	github.com/pawl-go/pawl/transport/sqs => ../transport/sqs
)
