package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// useFixture writes the fixture, a small NixOS, into dir, and sets the environment so that Nix uses it.
func useFixture(dir string) error {
	mini := filepath.Join(dir, "nixpkgs")
	if err := fixture.Assemble(mini); err != nil {
		return err
	}
	os.Setenv("NIX_CONFIG", fixture.NixConfig)
	os.Setenv("NIX_PATH", "nixpkgs="+mini)
	return nil
}

// writeHive writes a hive of n nodes. Each node has 200 services and reads one option of the next
// node. Each call produces different derivations, so that Nix cannot reuse derivations that an earlier
// round wrote to the store.
func writeHive(dir string, n int) (nixeval.Source, error) {
	file := filepath.Join(dir, fmt.Sprintf("hive-%d.nix", n))
	text := fmt.Sprintf(`let lib = (import <nixpkgs> { }).lib; n = %d; in
lib.listToAttrs (lib.genList (i: lib.nameValuePair "node-${toString i}" ({ name, nodes, ... }: {
  networking.hostName = name;
  environment.etc.run.text = "%d";
  environment.etc.neighbour.text = nodes."node-${toString (lib.mod (i + 1) n)}".config.networking.hostName;
  systemd.services = lib.listToAttrs (lib.genList (s: lib.nameValuePair "service-${toString s}" {
    wantedBy = [ "multi-user.target" ];
    script = "echo ${name} ${toString s}";
  }) 200);
})) n)
`, n, time.Now().UnixNano())
	return nixeval.Source{File: file, Dir: dir}, os.WriteFile(file, []byte(text), 0o644)
}

// benchInstantiate compares an evaluation of all nodes in one Nix process with nixbench's evaluation, which
// runs one process per chunk of nodes on all cores.
func benchInstantiate(ctx context.Context, dir string, _ []string) error {
	if err := useFixture(dir); err != nil {
		return err
	}
	const nodes, rounds = 20, 3
	fmt.Printf("%d nodes of the fixture, %d cores, best of %d\n", nodes, runtime.NumCPU(), rounds)
	var one, chunked time.Duration
	for range rounds {
		src, err := writeHive(dir, nodes)
		if err != nil {
			return err
		}
		e := nixeval.New(nixeval.Options{Source: src})
		d, err := measureTime(func() error {
			drvs, err := e.IntrospectDrvs(ctx, nixeval.Expression{
				Text: "{ nodes, lib, ... }: map (n: n.config.system.build.toplevel) (lib.attrValues nodes)",
			})
			if err == nil && len(drvs) != nodes {
				err = fmt.Errorf("%d derivations", len(drvs))
			}
			return err
		})
		if err != nil {
			return err
		}
		one = shorterTime(one, d)

		if src, err = writeHive(dir, nodes); err != nil {
			return err
		}
		e = nixeval.New(nixeval.Options{Source: src})
		hive, err := e.Survey(ctx)
		if err != nil {
			return err
		}
		var units []string
		for _, u := range hive.Units {
			units = append(units, u.Name)
		}
		d, err = measureTime(func() error {
			_, err := e.Instantiate(ctx, units)
			return err
		})
		if err != nil {
			return err
		}
		chunked = shorterTime(chunked, d)
	}
	fmt.Printf("one process  %6.2f s\n", one.Seconds())
	fmt.Printf("chunks       %6.2f s   %.1f times as fast\n", chunked.Seconds(), one.Seconds()/chunked.Seconds())
	return nil
}

func measureTime(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func shorterTime(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
