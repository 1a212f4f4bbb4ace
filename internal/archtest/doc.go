// Package archtest has the rules of the source tree as tests: which package may import
// which, which folders may contain Lua, which packages of the store only read, that every package has a doc comment, how large types and files of worker and of the store are, what each public
// package exports. It exports nothing. The table of rules is in rules_test.go.
package archtest
