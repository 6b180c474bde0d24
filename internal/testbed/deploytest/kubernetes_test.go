package deploytest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// objects decodes the objects of a file strictly: unknown and duplicate fields are errors.
func objects(name, text string, f *findings, into ...any) {
	parts := strings.Split(text, "\n---\n")
	if len(parts) != len(into) {
		f.add("%s holds %d objects, not %d", name, len(parts), len(into))
		return
	}
	for i, part := range parts {
		if err := yaml.UnmarshalStrict([]byte(part), into[i]); err != nil {
			f.add("%s: %v", name, err)
		}
	}
}

func lintWorker(text string, image built, f *findings) {
	var d appsv1.Deployment
	var budget policyv1.PodDisruptionBudget
	objects(worker, text, f, &d, &budget)
	f.check(d.APIVersion == "apps/v1" && d.Kind == "Deployment", "%s: the first object is a %s of %s", worker, d.Kind, d.APIVersion)
	f.check(budget.APIVersion == "policy/v1" && budget.Kind == "PodDisruptionBudget", "%s: the second object is a %s of %s", worker, budget.Kind, budget.APIVersion)

	labels := d.Spec.Template.Labels
	f.check(d.Spec.Selector != nil && len(d.Spec.Selector.MatchLabels) > 0 && within(d.Spec.Selector.MatchLabels, labels), "%s: the Deployment does not select its own pods", worker)
	f.check(budget.Spec.Selector != nil && len(budget.Spec.Selector.MatchLabels) > 0 && within(budget.Spec.Selector.MatchLabels, labels), "%s: the PodDisruptionBudget does not select the pods", worker)
	one := budget.Spec.MaxUnavailable
	f.check(one != nil && one.IntValue() > 0 && budget.Spec.MinAvailable == nil, "%s: the PodDisruptionBudget may let no pod go, and then no node is ever drained", worker)

	pod := d.Spec.Template.Spec
	c, env := lintPod(worker, pod, image, f)
	f.check(c.Command == nil || c.Command[0] == image.entrypoint, "%s: the command is not the worker of the image", worker)
	grace := pod.TerminationGracePeriodSeconds
	f.check(grace != nil && time.Duration(*grace)*time.Second >= stops(env, f)+margin, "%s: the grace period is shorter than %v and a margin of %v", worker, stops(env, f), margin)
	lintProbes(c, env, f)
}

// lintProbes checks that the probes use the program's paths and port.
func lintProbes(c corev1.Container, env map[string]string, f *findings) {
	health := portOf(env[envHealth], f)
	for _, p := range []struct {
		name, path string
		waits      time.Duration // longest wait for a response
		probe      *corev1.Probe
	}{{"startup", pathLive, 0, c.StartupProbe}, {"liveness", pathLive, 0, c.LivenessProbe}, {"readiness", pathReady, readyWaits, c.ReadinessProbe}} {
		if p.probe == nil || p.probe.HTTPGet == nil {
			f.add("%s: the %s probe does not ask over HTTP", worker, p.name)
			continue
		}
		ask := p.probe.HTTPGet
		f.check(ask.Path == p.path, "%s: the %s probe asks %s, and it is answered at %s", worker, p.name, ask.Path, p.path)
		f.check(time.Duration(p.probe.TimeoutSeconds)*time.Second > p.waits+time.Second, "%s: the %s probe waits for its answer for %d s, which is too short", worker, p.name, p.probe.TimeoutSeconds)
		at := ask.Port.String()
		for _, port := range c.Ports {
			if port.Name == at {
				at = strconv.Itoa(int(port.ContainerPort))
			}
		}
		f.check(at == health, "%s: the %s probe asks at port %s, and %s says %s", worker, p.name, at, envHealth, health)
	}
}

func lintMigrate(text string, image built, f *findings) {
	var j batchv1.Job
	objects(migrate, text, f, &j)
	f.check(j.APIVersion == "batch/v1" && j.Kind == "Job", "%s: the object is a %s of %s", migrate, j.Kind, j.APIVersion)
	pod := j.Spec.Template.Spec
	f.check(pod.RestartPolicy == corev1.RestartPolicyNever || pod.RestartPolicy == corev1.RestartPolicyOnFailure, "%s: a Job cannot have the restartPolicy %q", migrate, pod.RestartPolicy)
	f.check(!strings.Contains(j.Name, "."), "%s: the name %s has a dot, which its pods' names cannot have", migrate, j.Name)
	f.check(j.Spec.ActiveDeadlineSeconds != nil, "%s: the Job has no activeDeadlineSeconds", migrate)
	c, _ := lintPod(migrate, pod, image, f)
	f.check(len(c.Command) > 0 && slices.Contains(image.programs, c.Command[0]), "%s: %v is no program of the image, which has %v", migrate, c.Command, image.programs)
	f.check(len(c.Command) == 3 && c.Command[1] == "migrate" && c.Command[2] == "up", "%s: the command is not migrate up", migrate)

	// This check needs both files: the image must be the same and the login another.
	var d appsv1.Deployment
	if err := yaml.Unmarshal([]byte(strings.Split(image.worker, "\n---\n")[0]), &d); err != nil || len(d.Spec.Template.Spec.Containers) != 1 {
		return // reported by lintWorker
	}
	of := d.Spec.Template.Spec.Containers[0]
	f.check(of.Image == c.Image, "%s: the image %s is not that of the worker, %s", migrate, c.Image, of.Image)
	f.check(secretOf(of) != secretOf(c), "%s: the Job has the worker's login, and must have the owner's", migrate)
}

// lintPod checks a pod and returns its only container and that container's environment.
func lintPod(name string, pod corev1.PodSpec, image built, f *findings) (c corev1.Container, env map[string]string) {
	env = maps.Clone(image.env)
	if len(pod.Containers) != 1 {
		f.add("%s: the pod has %d containers", name, len(pod.Containers))
		return c, env
	}
	c = pod.Containers[0]
	_, tag, tagged := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	f.check(tagged && tag != "latest", "%s: the image %s has no tag that stays", name, c.Image)

	s, own := pod.SecurityContext, c.SecurityContext
	f.check(s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot, "%s: the pod may run as root", name)
	f.check(s != nil && s.RunAsUser != nil && strconv.FormatInt(*s.RunAsUser, 10) == image.user, "%s: runAsUser is not the image's user, %s: %v", name, image.user, userOf(s))
	f.check(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "%s: the pod has no seccomp profile", name)
	f.check(own != nil && own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation, "%s: the container may gain privileges", name)
	f.check(own != nil && own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem, "%s: the container may write to its image", name)
	f.check(own != nil && own.Capabilities != nil && slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}), "%s: the container keeps capabilities", name)
	f.check(pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken, "%s: the pod gets a token for the cluster that it does not need", name)
	f.check(!c.Resources.Requests.Memory().IsZero() && !c.Resources.Limits.Memory().IsZero() && c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) <= 0, "%s: memory is not requested within a limit", name)
	f.check(secretOf(c) != "", "%s: %s is not from a secret", name, envDatabase)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return c, env
}

func userOf(s *corev1.PodSecurityContext) int64 {
	if s == nil || s.RunAsUser == nil {
		return 0
	}
	return *s.RunAsUser
}

// secretOf returns the name of the secret with the database URL.
func secretOf(c corev1.Container) string {
	for _, e := range c.Env {
		if e.Name == envDatabase && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			return e.ValueFrom.SecretKeyRef.Name
		}
	}
	return ""
}

// within reports whether others contains all labels of some.
func within(some, others map[string]string) bool {
	for k, v := range some {
		if others[k] != v {
			return false
		}
	}
	return true
}
