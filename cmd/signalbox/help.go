package main

import "github.com/spf13/cobra"

// Commands are listed in the order in which somebody needs them.
func init() { cobra.EnableCommandSorting = false }

// usageTemplate is cobra's, but for what a reader at a terminal of 80 columns doesn't need on each page: the flags that say where Redis is
// stand in the help of the root alone.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} [command]{{else}}{{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Every command takes -o json, and flags that say where Redis is (--redis,
--namespace and others): see "signalbox --help".{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more about a command.{{end}}
`
