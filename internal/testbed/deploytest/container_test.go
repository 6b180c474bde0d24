package deploytest

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// A built describes an image without building it.
type built struct {
	user       string
	env        map[string]string
	programs   []string // in the image
	entrypoint string
	worker     string // text of the worker's file, for comparison
}

func lintContainerfile(text string, f *findings) (image built) {
	image.env = map[string]string{}
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		f.add("%s: %v", containerfile, err)
		return image
	}
	for _, w := range parsed.Warnings {
		f.add("%s: %s", containerfile, w.Short)
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		f.add("%s: %s: %s", containerfile, rule, message)
	}}))
	if err != nil {
		f.add("%s: %v", containerfile, err)
		return image
	}
	if len(stages) != 2 {
		f.add("%s has %d stages, not one that builds and one that is left", containerfile, len(stages))
		return image
	}
	outputs := lintBuild(stages[0], f)
	lintFinal(stages[0].Name, stages[1], outputs, &image, f)
	return image
}

var output = regexp.MustCompile(`-o (\S+)`)

// lintBuild returns the files that the first stage produces.
func lintBuild(s instructions.Stage, f *findings) (outputs []string) {
	static := false
	for _, c := range s.Commands {
		switch c := c.(type) {
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				static = static || e.Key == "CGO_ENABLED" && e.Value == "0"
			}
		case *instructions.RunCommand:
			for _, of := range output.FindAllStringSubmatch(strings.Join(c.CmdLine, " "), -1) {
				f.check(static, "%s: CGO_ENABLED is not 0 when %s is built, and the image has no C library", containerfile, of[1])
				outputs = append(outputs, of[1])
			}
		}
	}
	return outputs
}

func lintFinal(build string, s instructions.Stage, outputs []string, image *built, f *findings) {
	exposed := ""
	for _, c := range s.Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			f.check(c.From == build, "%s: copies from %q, and the stage is %q", containerfile, c.From, build)
			for _, from := range c.SourcePaths {
				f.check(slices.Contains(outputs, from), "%s: copies %s, which no build writes", containerfile, from)
				image.programs = append(image.programs, path.Join(c.DestPath, path.Base(from)))
			}
		case *instructions.UserCommand:
			image.user, _, _ = strings.Cut(c.User, ":")
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				image.env[e.Key] = e.Value
			}
		case *instructions.ExposeCommand:
			exposed = strings.Join(c.Ports, " ")
		case *instructions.StopSignalCommand:
			f.check(c.Signal == "SIGTERM", "%s: STOPSIGNAL is %s", containerfile, c.Signal)
		case *instructions.EntrypointCommand:
			f.check(!c.PrependShell && len(c.CmdLine) == 1, "%s: ENTRYPOINT runs a shell, which takes SIGTERM in the program's place", containerfile)
			if !c.PrependShell && len(c.CmdLine) > 0 {
				image.entrypoint = c.CmdLine[0]
			}
		case *instructions.RunCommand:
			f.add("%s: the last image has no shell for RUN %v", containerfile, c.CmdLine)
		}
	}
	f.check(regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(image.user), "%s: USER is %q: only a number other than 0 passes runAsNonRoot", containerfile, image.user)
	f.check(slices.Contains(image.programs, image.entrypoint), "%s: ENTRYPOINT %q is not one of %v", containerfile, image.entrypoint, image.programs)
	f.check(portOf(image.env[envHealth], f) == exposed, "%s: EXPOSE %s, and %s is %s", containerfile, exposed, envHealth, image.env[envHealth])
}
