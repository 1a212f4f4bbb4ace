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

  # Puts jobs into one queue. Several threads may share it: their calls follow one another.
  class Producer
    CLASSES = { "high" => "0", "normal" => "1", "low" => "2" }.freeze
    KEYS = %w[jobs due idle stats cron ready:high ready:normal ready:low dead cancelled notes settings completed
              lined turns groups unique windows expires].freeze
    OUTCOMES = { "1" => "enqueued", "D" => "replaced", "C" => "replaced", "F" => "replaced", "0" => "exists", "s" => "exists", "n" => "full" }.freeze
    NAME = /\A[\x21-\x7a\x7c\x7e]{1,200}\z/.freeze

    # patience is how many seconds a call is made again while there is no reply.
    def initialize(redis, queue: "default", namespace: "default", script: File.join(__dir__, "../../../docs/enqueue.lua"), patience: 30)
      @redis, @queue, @patience = redis, name("queue", queue), patience
      @prefix, @registry = "signalbox:{#{name("namespace", namespace)}:#{queue}}:", "signalbox:{#{namespace}:}:queues"
      @script = File.read(script)
      @sha = Digest::SHA1.hexdigest(@script)
      @lock = Mutex.new
      begin_lane
    end

    # Enqueues jobs, in calls of 1,000, and returns a Result for each. A job is a Hash:
    #
    #   kind:          which handler runs it
    #   args:          its arguments, by default {}: what JSON.generate takes
    #   id:            1 to 200 bytes of printable ASCII; by default a random one
    #   delay: or at:  seconds from now, or a Time; by default now
    #   priority:      "high", "normal" or "low"
    #   headers:       a Hash of strings
    #   max_attempts:  by default 25
    #
    # If the queue is full, jobs are left out, and it raises QueueFull, which has the results.
    #
    # A call whose reply is lost is made again, and tells what the first one did. A Redis::CommandError says that the call did nothing (of
    # NOPERM: see docs/wire.md). A Redis::BaseConnectionError after all the patience leaves open whether the call's jobs are in: call again
    # with the same IDs.
    def enqueue(jobs)
      sent = jobs.map { |job| [job[:id] || SecureRandom.alphanumeric(22), job] }
      args = sent.map { |id, job| arguments(id, job) } # all are looked at before the first is sent
      results = sent.zip(args).each_slice(1000).flat_map do |part|
        outcomes = @lock.synchronize { call(part.flat_map(&:last)) }
        outcomes *= part.size if outcomes.size == 1
        part.zip(outcomes).map { |((id, _), _), outcome| Result.new(id, OUTCOMES.fetch(outcome)) }
      end
      raise QueueFull.new(results) if results.any? { |result| result.outcome == "full" }

      results
    end

    private

    # A lane tells a call that is made again from a new one. It has one call under way.
    def begin_lane = (@lane, @number = SecureRandom.alphanumeric(22), 0)

    def call(args)
      begin_lane if @used && now - @used > 1800 # Redis forgets a lane an hour after its last call
      @used = now
      @number += 1
      keys = ["lane:#{@lane}", *KEYS].map { |key| @prefix + key }
      begin
        status, _, outcomes, *more = evaluate(keys, ["3 #{@number}", *args])
      rescue Redis::BaseConnectionError
        raise if now - @used > @patience

        sleep 0.1
        retry # with the same number
      rescue Redis::CommandError
        begin_lane
        raise
      end
      raise "signalbox: a later call of this lane came first, though it has one call at a time" unless status == "ok"

      @redis.sadd(@registry, [@queue]) if more.size > 1
      outcomes
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
      raise ArgumentError, "signalbox: a job has no #{unknown.first}" unless unknown.empty?
      raise ArgumentError, "signalbox: priority #{priority.inspect}, want high, normal or low" unless CLASSES.key?(priority)

      [name("id", id), CLASSES[priority], time(job), envelope(job)]
    end

    def time(job)
      return "@#{(job[:at].to_r * 1_000_000).to_i}" if job[:at]

      job[:delay] ? "+#{(job[:delay] * 1_000_000).to_i}" : ""
    end

    def envelope(job)
      out = bytes(1, name("kind", job[:kind])) + bytes(2, JSON.generate(job.fetch(:args, {})))
      job.fetch(:headers, {}).sort.each { |header, value| out << bytes(3, bytes(1, header.to_s) + bytes(2, value)) }
      out << [5 << 3].pack("C") << varint(job[:max_attempts]) if job[:max_attempts]
      out << [(9 << 3) + 1].pack("C") << SecureRandom.bytes(8) if job[:id] # an ID that can come again: docs/wire.md, "The effect key"
      out
    end

    def bytes(field, value) = [(field << 3) + 2].pack("C") + varint(value.bytesize) + value.b

    def varint(number)
      raise ArgumentError, "signalbox: #{number.inspect}, want a whole number from 0" unless number.is_a?(Integer) && number >= 0

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
