package postgres

import (
	"context"
	"errors"
)

func downloaded(ctx context.Context, o Options) (string, error) { return "", errors.New("postgres: there is no download yet") }
