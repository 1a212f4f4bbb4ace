package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty marks a flag for which an empty value means something.
const mayBeEmpty = "signalbox_may_be_empty"

// allowEmpty lets a flag of the command be given with an empty value.
func allowEmpty(c *cobra.Command, name string) {
	_ = c.Flags().SetAnnotation(name, mayBeEmpty, nil)
}

// checkEmpty returns an error if a flag was given with an empty value, as from an unset variable of a shell. As a flag that isn't given, it would name more
// than was meant: --group "" the whole queue.
func checkEmpty(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == "" // the other types refuse an empty text
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := list.GetSlice()
			empty = len(values) == 0 || slices.Contains(values, "")
		}
		if _, may := f.Annotations[mayBeEmpty]; empty && !may && err == nil {
			err = usage("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}
