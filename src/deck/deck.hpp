// The deck: all parameters of a run. parameters.cpp holds the one table that defines them (name, type, default, unit,
// allowed values, meaning); parsing, validation, help and docs/parameters.md come from it.
#pragma once

#include "deck/shard.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct Deck {
  struct Model {
    std::string checkpoint;
    std::int64_t max_context = 0;  // 0: the model's own limit
    std::string sharing;           // of what every rank needs: "auto", "node" or "rank"
  } model;
  struct Requests {
    std::vector<std::string> input;  // paths, patterns, "-"; at least one
    std::int64_t max_tokens = 0;
    std::string arrivals;        // trace of arrival times; empty: none
    double arrival_scale = 1.0;  // all arrival times are multiplied by it
    double temperature = 0.0;
    std::string date;  // what a chat template takes for now; empty: it may not ask
    Shard shard;       // the lines that are answered
  } requests;
  struct Output {
    std::string directory;
  } output;
  struct Experts {
    double replication = 1.0;
    std::int64_t slots_per_rank = 0;   // 0: from replication
    std::string placement;             // "trivial", "eplb", "activation-aware", or the path of a placement file
    std::string loads;                 // JSON file of loads for eplb; empty: all equal
    std::string trace;                 // routing trace for activation-aware
    std::int64_t rebalance_steps = 0;  // 0: never
    std::string rebalance_source;      // "auto", "peers" or "checkpoint"
  } experts;
  struct Routing {
    std::string decode;
    std::string prefill;
    std::string ties;       // of exact: "first" or "near"
    std::int64_t seed = 0;  // of vllm-random
    // Of makespan: a rank's time in a MoE layer, in ns.
    std::int64_t read_fixed_ns = 0;
    std::int64_t read_per_expert_ns = 0;
    std::int64_t compute_fixed_ns = 0;
    std::int64_t compute_per_row_ns = 0;
  } routing;
  struct Decode {
    std::string exchange;  // "auto", "allgather" or "ids_then_alltoall"
    std::string gate;      // "local" or "gathered"
  } decode;
  struct Batch {
    std::int64_t max_sequences_per_rank = 0;
    std::int64_t prefill_chunk = 0;
    double prefill_min = 0.0;
  } batch;
  struct Kv {
    std::int64_t block_tokens = 0;
    std::int64_t memory = 0;     // bytes per rank; 0: what the batch can use, within the memory that is free
    std::string share_prefixes;  // prompts that begin alike share blocks: "on" or "off"
  } kv;
  struct Exchange {
    std::int64_t memory = 0;  // bytes of expert rows a rank holds at a time; more goes in further rounds
    std::string levels;       // between nodes: "auto", "one" or "two"
    std::string transport;    // of memory of devices: "auto", "mpi" or "nccl"
  } exchange;
  struct Device {
    std::string share;     // several ranks may have the same: "off" or "on"
    std::string decode;    // who routes and lists the work of a step: "auto", "device" or "host"
    std::string graphs;    // kernels between exchanges launched as one: "on" or "off"
    std::string messages;  // of results, when the device lists them: "exact" or "fixed"
  } device;
  struct Kernels {
    std::string reproducible;  // "on", or "off": experts of prefill by the vendor's product
  } kernels;
  struct Trace {
    std::string record;  // routing trace to write; empty: none
  } trace;
  struct Run {
    std::int64_t threads = 1;
    std::string simd;  // vector instructions of the kernels on a CPU
    double timeout_s = 0.0;
    double checkpoint_s = 0.0;  // 0: only at a stop
    std::string core_dumps;     // "off" or "on"
  } run;
};

// Reads a TOML deck and then `overrides` ("table.key=value", value in TOML syntax; a bare word is taken as a string).
// Throws Error(usage) naming file, line, key, value and what is allowed; an unknown key suggests the nearest one.
Deck read_deck(const std::string& path, const std::vector<std::string>& overrides);
// The same from text; `origin` stands for the file name in messages.
Deck parse_deck(const std::string& toml_text, const std::string& origin, const std::vector<std::string>& overrides);

// The resolved deck as TOML, every key with its unit and meaning as a comment. Parsing it gives the same deck.
std::string deck_to_toml(const Deck& deck);

// The reference page docs/parameters.md.
std::string parameters_page();

// One line per parameter for `metro run --help`: name, unit, meaning, default.
std::string parameters_help();

}  // namespace metro
