// Package archtest holds the rules of the source tree as failing tests: who may import
// whom, where Lua may live, that every package says what it is for. It has nothing
// to import; the table of rules is in rules_test.go.
package archtest
