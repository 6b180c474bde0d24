package catalog

import (
	"context"
	"embed"
	"strings"
)

// The queries of package doctor, one a file. They return facts, and the doctor phrases them.
//
//go:embed doctor/*.sql
//go:embed doctor/*.sql
var doctorFiles embed.FS

// Facts runs a query of the doctor, named by its file, and reads its columns by the json tags of T.
func Facts[T any](ctx context.Context, db DB, question string, args ...any) ([]T, error) {
	text, err := doctorFiles.ReadFile("doctor/" + question + ".sql")
	if err != nil {
		return nil, err
	}
	inner := strings.ReplaceAll(string(text), "/* presence free */", PresenceFree)
	return lookRows[T](ctx, db, "doctor."+question, "(\n"+inner+") as r", args...)
}
