package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// PlanFile is a plan file that may be applied.
type PlanFile struct {
	stages.SavedPlan
	File      string
	Elsewhere bool   // the hive of the plan is not here
	Signer    string // who has signed it; empty: it was made here, or the user trusts it
}

// NeedsNoHive reports whether the plan is applied without evaluating a hive.
func (p *PlanFile) NeedsNoHive() bool { return p != nil && (p.Elsewhere || p.OnlyBuilds()) }

// PlanTrust says which plans without their hive are applied.
type PlanTrust struct {
	Signers  string // path of a file as described in ssh-keygen(1), ALLOWED SIGNERS
	Unsigned bool   // also plans without a signature
}

// signatureNamespace is what a signature of a plan is for, so that a signature of another kind of file is not accepted.
const signatureNamespace = "nixbench-plan"

// ReadPlan reads a plan file. If the state of the request's hive has made it, it is applied with this state. Otherwise it must be signed by
// someone whose plans the user accepts: whoever makes a plan chooses what is deployed. The hive that the plan names is never used unless
// it is that of the request, because a hive can run programs.
func (r Request) ReadPlan(ctx context.Context, file string, trust PlanTrust) (*PlanFile, error) {
	data, err := durable.Read(file, durable.ConfigSize)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if err != nil {
		return nil, stages.NewPlanError(file, "%w", err)
	}
	p := &PlanFile{File: file}
	if p.SavedPlan, err = stages.ReadPlan(file, data); err != nil {
		return nil, err
	}
	notMade, err := r.checkMadeHere(p.SavedPlan)
	if err != nil || notMade == "" {
		return p, err
	}
	p.Elsewhere = true
	if !revisionRE.MatchString(p.Revision) {
		p.Revision = ""
	}
	switch signature := file + ".sig"; {
	case r.File != "" || r.Flake != "":
		return nil, stages.NewPlanError(file, "%s; without -f and --flake it can be applied if it is signed", notMade)
	case trust.Unsigned:
	case !durable.Exists(signature):
		return nil, failure.WithHint(failure.NewUsage("plan %s: %s, and there is no signature %s", file, notMade, signature),
			fmt.Sprintf("-f HIVE names the hive; ssh-keygen -Y sign -n %s -f KEY %s signs the plan; --unsigned applies it without a signature", signatureNamespace, shellescape.Quote(file)))
	case !durable.Exists(trust.Signers):
		return nil, failure.WithHint(failure.NewUsage("plan %s: there is no file %q with the keys that may sign plans", file, trust.Signers),
			"--allowed-signers names the file; each line: NAME ssh-ed25519 KEY, see ssh-keygen(1), ALLOWED SIGNERS")
	default:
		if err := nixeval.CheckTrust(trust.Signers); err != nil {
			return nil, err
		}
		if p.Signer, err = verifySignature(ctx, data, signature, trust.Signers); err != nil {
			return nil, failure.WithKind(failure.Usage, fmt.Errorf("plan %s: the signature %s is not valid: %w", file, signature, err))
		}
	}
	if err := p.CheckSystems(); err != nil {
		return nil, failure.WithKind(failure.Usage, fmt.Errorf("plan %s: %w", file, err))
	}
	return p, nil
}

// revisionRE matches what ReadGitRevision returns.
var revisionRE = regexp.MustCompile(`^[0-9a-f]{40,64}(?:-dirty)?$`)

// checkMadeHere returns an empty string if the state of the request's hive has made the plan, and otherwise why this is not so.
func (r Request) checkMadeHere(saved stages.SavedPlan) (notMade string, err error) {
	here, err := r.locate()
	isNamed := r.File != "" || r.Flake != ""
	switch {
	case isNamed && err != nil:
		return "", err
	case err != nil && !errors.Is(err, nixeval.ErrNoHive):
		return fmt.Sprintf("its hive is %q, and %v", saved.Hive, err), nil
	case !isNamed && (err != nil || here.String() != saved.Hive):
		return fmt.Sprintf("its hive is %q, which is not the one here", saved.Hive), nil
	}
	notMade = fmt.Sprintf("the state of cluster %q here has not written it, or it was changed", saved.Cluster)
	if saved.Cluster != filepath.Base(saved.Cluster) || strings.HasPrefix(saved.Cluster, ".") { // no name of a cluster
		return notMade, nil
	}
	dir, err := state.Locate(here, saved.Cluster)
	if err == nil {
		err = dir.Verify()
	}
	if err != nil {
		return "", err
	}
	key, err := keys.PlanKey(dir)
	if err == nil && saved.IsMadeWith(key) {
		notMade = ""
	}
	return notMade, err
}

// verifySignature returns the name of the signer in the file signers who has signed data.
func verifySignature(ctx context.Context, data []byte, signature, signers string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "ssh-keygen", append(args, "-s", signature, "-f", signers)...)
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(data), &stderr
		out, err := cmd.Output()
		if text := strings.TrimSpace(strings.ReplaceAll(stderr.String()+string(out), "\r", "")); err != nil && text != "" {
			err = fmt.Errorf("ssh-keygen: %s", text)
		}
		return string(out), err
	}
	found, err := run("-Y", "find-principals")
	if err != nil {
		return "", fmt.Errorf("no key in %s has made it: %w", signers, err)
	}
	signer, _, _ := strings.Cut(found, "\n")
	_, err = run("-Y", "verify", "-n", signatureNamespace, "-I", signer)
	return signer, err
}
