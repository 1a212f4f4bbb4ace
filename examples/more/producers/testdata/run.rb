# frozen_string_literal: true

# usage: run.rb ADDRESS QUEUE RESENDS. RESENDS is how often the client itself sends a command again after a lost connection. Each line of the input is a list of jobs in JSON, each of the output what became of them, or the error.
require_relative "../signalbox"

host, port = ARGV[0].split(":")
producer = Signalbox::Producer.new(Redis.new(host: host, port: port.to_i, timeout: 20, reconnect_attempts: ARGV[2].to_i), queue: ARGV[1])
$stdout.sync = true
$stdin.each_line do |line|
  if line.start_with?('"fork') # a process that has the producer of this one enqueues first
    producer.enqueue([{ kind: "k" }])
    Process.wait(fork { producer.enqueue([{ kind: "k", id: "of-child" }]) })
    puts JSON.generate({ results: producer.enqueue([{ kind: "k", id: "of-parent" }]).map(&:to_h) })
    next
  end
  jobs = JSON.parse(line).map do |job|
    job = job.transform_keys(&:to_sym)
    job[:at] = Time.at(0, job[:at], :millisecond) if job[:at]
    job[:max_attempts] = job.delete(:attempts) if job[:attempts]
    job
  end
  puts JSON.generate({ results: producer.enqueue(jobs).map(&:to_h) })
rescue Signalbox::QueueFull, Signalbox::Failed => e
  puts JSON.generate({ results: e.results.map(&:to_h), error: "#{e.class}: #{e.message}" })
rescue StandardError => e
  puts JSON.generate({ error: "#{e.class}: #{e.message}" })
end
