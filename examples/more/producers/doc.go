// Package producers has producers in other languages, which may be copied: signalbox.rb for Ruby and signalbox.mjs for Node. They send docs/enqueue.lua by the usual
// Redis clients of these languages. The tests run them against a real Redis.
package producers
