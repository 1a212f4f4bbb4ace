package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) workerCommand() *cobra.Command {
	return a.group("worker", "List workers, and make one take no more jobs", a.workerQuiet(), a.workerUnquiet())
}

func (a *app) workerQuiet() *cobra.Command {
	return a.workerSwitch("quiet WORKER", "Make a worker take no more jobs: those that it has go on", true, (*inspect.Inspector).Quiet,
		"worker %s takes no more jobs; those that it has go on\n", "worker %s was quiet already\n")
}

func (a *app) workerUnquiet() *cobra.Command {
	return a.workerSwitch("unquiet WORKER", "Let a quiet worker take jobs again", false, (*inspect.Inspector).Unquiet,
		"worker %s takes jobs again\n", "worker %s was not quiet\n")
}

func (a *app) workerSwitch(use, short string, quiet bool, do func(*inspect.Inspector, context.Context, string) (bool, error), did, was string) *cobra.Command {
	c := a.command(use, short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		changed, err := do(ins, ctx, args[0])
		if err != nil {
			return err
		}
		if a.json() {
			return a.document(struct {
				Worker  string `json:"worker"`
				Quiet   bool   `json:"quiet"`
				Changed bool   `json:"changed"`
			}{args[0], quiet, changed})
		}
		if !changed {
			did = was
		}
		fmt.Fprintf(a.out, did, args[0])
		return nil
	})
	c.ValidArgsFunction = a.completeWorkers
	return c
}
