# frozen_string_literal: true

# Enqueues jobs for Signalbox from Ruby. It needs the gem redis and docs/enqueue.lua: copy both files, and say where the script is.
# docs/wire.md describes the call.
#
#   producer = Signalbox::Producer.new(Redis.new, script: "enqueue.lua")
#   producer.enqueue([{ kind: "email.welcome", args: { UserID: 42 }, id: "user-42-welcome" }])
#   # => [#<struct Signalbox::Result id="user-42-welcome", outcome="enqueued">]

require "digest"
require "json"
require "redis"
require "securerandom"

module Signalbox
  # What became of a job: "enqueued"; "replaced", which took the place of one that has ended and was kept; "exists", left out since a live job
  # has its ID; "full", left out since the queue has as many jobs as it may have.
  Result = Struct.new(:id, :outcome) do
    def enqueued? = %w[enqueued replaced].include?(outcome)
  end

  # Says that the queue has as many jobs as it may have, and that jobs were left out: those of results whose outcome is "full". The others are in.
  class QueueFull < StandardError
    attr_reader :results

    def initialize(results)
      @results = results
      super("signalbox: the queue has as many jobs as it may have: #{results.count { |r| r.outcome == "full" }} of #{results.size} were left out")
    end
  end

  # Says that a call failed; cause is the error of the gem redis. results are those of the calls before it: of the first jobs. uncertain says that it isn't known
  # whether the jobs of the call are in, as a try of it had no reply: enqueue them again with the same IDs. Else they aren't in. Those behind them never are.
  class Failed < StandardError
    attr_reader :results, :uncertain

    def initialize(results, uncertain, why)
      @results, @uncertain = results, uncertain
      super("signalbox: behind the first #{results.size} jobs #{uncertain ? "it isn't known which are in" : "none is in"}: #{why}")
    end
  end

  # Puts jobs into one queue. Several threads may share it: their calls follow one another. So may processes that were forked from one that has made it.
  class Producer
    CLASSES = { "high" => "0", "normal" => "1", "low" => "2" }.freeze
    KEYS = %w[jobs due idle stats cron ready:high ready:normal ready:low dead cancelled notes settings completed
              lined turns groups unique windows expires].freeze
    OUTCOMES = { "1" => "enqueued", "D" => "replaced", "C" => "replaced", "F" => "replaced", "0" => "exists", "s" => "exists", "n" => "full" }.freeze
    NAME = /\A[\x21-\x7a\x7c\x7e]{1,200}\z/.freeze
    OUTAGES = /\A(READONLY|LOADING|OOM|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MISCONF|BUSY|UNKILLABLE|NOREPLICAS)\b/.freeze # what Redis says in an outage

    # patience is how many seconds a call is made again while there is no reply.
    def initialize(redis, queue: "default", namespace: "default", script: File.join(__dir__, "../../../docs/enqueue.lua"), patience: 30)
      @redis, @queue, @patience = redis, name("queue", queue), patience
      @prefix, @registry = "signalbox:{#{name("namespace", namespace)}:#{queue}}:", "signalbox:{#{namespace}:}:queues"
      @script = File.read(script)
      @sha = Digest::SHA1.hexdigest(@script)
      @lock = Mutex.new
    end

    # Enqueues jobs, in calls of 1,000, and returns a Result for each. A job is a Hash:
    #
    #   kind:          which handler runs it
    #   args:          its arguments, by default {}: what JSON.generate takes. The job takes 1 MiB at most
    #   id:            1 to 200 bytes of printable ASCII; by default a random one
    #   delay: or at:  seconds from now, 0 to 3,000,000,000, or a Time; by default now
    #   priority:      "high", "normal" or "low"
    #   headers:       a Hash of strings
    #   max_attempts:  1 to 1,000,000, by default 25
    #
    # Raises an ArgumentError if a job isn't one: then none is in; QueueFull if jobs were left out; Failed if Redis refuses a call, or doesn't answer for as long as
    # patience says. A call whose reply is lost is made again, and tells what the first try did.
    def enqueue(jobs)
      sent = jobs.map { |job| [job[:id] || SecureRandom.alphanumeric(22), job] }
      args = sent.map { |id, job| arguments(id, job) } # all are looked at before the first is sent
      results = []
      sent.zip(args).each_slice(1000) do |part|
        outcomes = @lock.synchronize { call(part.flat_map(&:last), results) }
        outcomes *= part.size if outcomes.size == 1
        part.zip(outcomes) { |((id, _), _), outcome| results << Result.new(id, OUTCOMES.fetch(outcome)) }
      end
      raise QueueFull.new(results) if results.any? { |result| result.outcome == "full" }

      results
    end

    private

    # A lane tells a call that is made again from a new one. It has one call under way, so a process has its own.
    def begin_lane = (@lane, @number, @pid, @used = SecureRandom.alphanumeric(22), 0, Process.pid, now)

    # before has the results of the calls before.
    def call(args, before)
      begin_lane if @pid != Process.pid || now - @used > 1800 # Redis forgets a lane an hour after its last call
      @used = now
      @number += 1
      keys = ["lane:#{@lane}", *KEYS].map { |key| @prefix + key }
      lost = false # a try had no reply, so it may have been done: only the same call tells
      begin
        status, _, outcomes, *more = evaluate(keys, ["3 #{@number}", *args])
        raise "signalbox: a later call of this lane came first, though it has one call at a time" unless status == "ok"
      rescue Redis::BaseError => e
        lost ||= e.is_a?(Redis::BaseConnectionError)
        if lost && (e.is_a?(Redis::BaseConnectionError) || e.message.match?(OUTAGES)) && now - @used <= @patience
          sleep 0.1
          retry # with the same number
        end
        @pid = nil # the next call begins a lane
        raise Failed.new(before, lost || e.message.start_with?("NOPERM"), e.message)
      end
      register if more.size > 1
      outcomes
    end

    # Lists the queue for people and their tools. A worker does so, too.
    def register
      @redis.sadd(@registry, [@queue])
    rescue Redis::BaseError
      nil
    end

    def evaluate(keys, argv)
      @redis.evalsha(@sha, keys, argv)
    rescue Redis::CommandError => e
      raise unless e.message.start_with?("NOSCRIPT")

      @redis.eval(@script, keys, argv)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def arguments(id, job)
      priority = job.fetch(:priority, "normal").to_s
      unknown = job.keys - %i[kind args id delay at priority headers max_attempts]
      raise ArgumentError, "signalbox: a job has no #{unknown.first.inspect}; its fields are symbols: kind, args, id, delay, at, priority, headers, max_attempts" unless unknown.empty?
      raise ArgumentError, "signalbox: priority #{priority.inspect}, want high, normal or low" unless CLASSES.key?(priority)

      [name("id", id), CLASSES[priority], time(job), envelope(job)]
    end

    def time(job)
      at, delay = job[:at], job[:delay]
      raise ArgumentError, "signalbox: delay and at, want one of them" if at && delay
      raise ArgumentError, "signalbox: at #{at.inspect}, want a Time from 1970 on" unless at.nil? || at.is_a?(Time) && at.to_i.positive?

      want = "a number of seconds, 0 to 3,000,000,000"
      raise ArgumentError, "signalbox: delay #{delay.inspect}, want #{want}" unless delay.nil? || delay.is_a?(Numeric) && delay.real? && delay.between?(0, 3_000_000_000)

      at ? "@#{(at.to_r * 1_000_000).to_i}" : delay ? "+#{(delay * 1_000_000).to_i}" : ""
    end

    def envelope(job)
      out = bytes(1, name("kind", job[:kind])) + bytes(2, JSON.generate(job[:args].nil? ? {} : job[:args]))
      (job[:headers] || {}).sort.each do |header, value|
        raise ArgumentError, "signalbox: header #{header.inspect}: want strings" unless value.is_a?(String)

        out << bytes(3, bytes(1, header.to_s) + bytes(2, value))
      end
      attempts = job[:max_attempts]
      raise ArgumentError, "signalbox: max_attempts #{attempts.inspect}, want a whole number, 1 to 1,000,000" unless attempts.nil? || attempts.is_a?(Integer) && attempts.between?(1, 1_000_000)

      out << [5 << 3].pack("C") << varint(attempts) if attempts
      out << [(9 << 3) + 1].pack("C") << SecureRandom.bytes(8) if job[:id] # an ID that can come again: docs/wire.md, "The effect key"
      raise ArgumentError, "signalbox: the job takes #{out.bytesize} bytes, want #{1 << 20} at most" if out.bytesize > 1 << 20

      out
    end

    def bytes(field, value) = [(field << 3) + 2].pack("C") + varint(value.bytesize) + value.b

    def varint(number)
      out = +"".b
      while number > 127
        out << (number & 127 | 128)
        number >>= 7
      end
      out << number
    end

    def name(field, value)
      return value if value.is_a?(String) && value.match?(NAME)

      raise ArgumentError, "signalbox: #{field} #{value.inspect}, want 1 to 200 bytes of printable ASCII without spaces and braces"
    end
  end
end
