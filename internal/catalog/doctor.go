package catalog

import (
	"context"
	"embed"
	"strings"
)

// The questions of package doctor, one a file. Each answers facts; the doctor words them.
//
//go:embed doctor/*.sql
var doctorFiles embed.FS

// Facts runs a question of the doctor, by the name of its file, and reads its columns by the json tags of T.
func Facts[T any](ctx context.Context, db DB, question string, args ...any) ([]T, error) {
	text, err := doctorFiles.ReadFile("doctor/" + question + ".sql")
	if err != nil {
		return nil, err
	}
	inner := strings.ReplaceAll(string(text), "/* presence free */", PresenceFree)
	return lookRows[T](ctx, db, "doctor."+question, "(\n"+inner+") as r", args...)
}
