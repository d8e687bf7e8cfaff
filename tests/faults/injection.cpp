#include "faults/injection.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace faults {

namespace {

[[noreturn]] void refuse(const std::string& reason) {
  std::fprintf(stderr, "METRO_TEST_FAULT: %s\n", reason.c_str());
  std::fflush(stderr);
  ::_exit(99);
}

enum class Argument { none, number, name };

const std::map<std::string, Argument>& acts() {
  static const std::map<std::string, Argument> table{{"signal", Argument::name},    {"abort", Argument::none},
                                                     {"exit", Argument::number},    {"throw", Argument::none},
                                                     {"hang", Argument::none},      {"late", Argument::number},
                                                     {"bad_alloc", Argument::none}, {"fail", Argument::none},
                                                     {"flip", Argument::number},    {"flip_received", Argument::number},
                                                     {"resize", Argument::number},  {"errno", Argument::name},
                                                     {"torn", Argument::none},      {"zero", Argument::none}};
  return table;
}

const std::map<std::string, int>& signals() {
  static const std::map<std::string, int> table{{"KILL", SIGKILL}, {"STOP", SIGSTOP}, {"SEGV", SIGSEGV},
                                                {"TERM", SIGTERM}, {"INT", SIGINT},   {"USR1", SIGUSR1}};
  return table;
}

long number_of(const std::string& key, const std::string& text) {
  long value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) {
    refuse(key + "=" + text + ": a number is expected");
  }
  return value;
}

void set(Fault& fault, const std::string& key, const std::string& value) {
  if (key == "call") {
    fault.call = value;
  } else if (key == "file") {
    fault.file = value;
  } else if (key == "rank") {
    fault.rank = number_of(key, value);
  } else if (key == "at") {
    fault.at = number_of(key, value);
  } else if (key == "bytes") {
    fault.bytes = number_of(key, value);
  } else if (key == "do") {
    const std::size_t colon = std::min(value.find(':'), value.size());
    fault.act = value.substr(0, colon);
    fault.argument = colon < value.size() ? value.substr(colon + 1) : "";
  } else {
    refuse(key + " is none of call, file, rank, at, bytes, do");
  }
}

void check(Fault& fault) {
  const auto known = acts().find(fault.act);
  if (known == acts().end()) {
    refuse("do=" + fault.act + " is unknown");
  }
  if ((known->second == Argument::none) != fault.argument.empty()) {
    refuse("do=" + fault.act + (fault.argument.empty() ? " needs an argument" : " takes no argument"));
  }
  if (known->second == Argument::number) {
    fault.number = number_of("do=" + fault.act, fault.argument);
  }
  if (fault.act == "signal" && !signals().contains(fault.argument)) {
    refuse("do=signal:" + fault.argument + " is unknown");
  }
  if (fault.act == "errno" && fault.argument != "EIO" && fault.argument != "ENOSPC") {
    refuse("do=errno:" + fault.argument + " is unknown");
  }
  const bool has_file = !fault.call.starts_with("MPI_");
  if (fault.call.empty() || has_file == fault.file.empty()) {
    refuse("a call of MPI is expected, or another one and a file");
  }
  if (fault.at < 1) {
    refuse("at counts from 1");
  }
}

std::optional<Fault> parse() {
  const char* text = std::getenv("METRO_TEST_FAULT");
  if (text == nullptr) {
    return std::nullopt;
  }
  Fault fault;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      refuse(word + " is no key=value");
    }
    set(fault, word.substr(0, equals), word.substr(equals + 1));
  }
  check(fault);
  return fault;
}

const std::optional<Fault>& chosen() {
  static const std::optional<Fault> fault = parse();
  return fault;
}

// An ill-formed variable shows at the start, and not in the first call that is watched.
[[gnu::constructor]] void check_at_start() {
  chosen();
}

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "";
}

// With METRO_TEST_CALLS, the beginning of a path, all calls of MPI are listed there, in a file per rank.
void list_call(const char* call, std::size_t num_bytes) {
  static std::FILE* const list = [] {
    const char* path = std::getenv("METRO_TEST_CALLS");
    return path == nullptr ? nullptr : std::fopen((path + std::to_string(launched_rank())).c_str(), "w");
  }();
  if (list != nullptr) {
    std::fprintf(list, "%s %zu\n", call, num_bytes);
    std::fflush(list);
  }
}

// Number of this call among those that the fault is looking for; 0 if it is none of them.
long counted(const char* call, std::size_t num_bytes, int descriptor) {
  if (descriptor < 0) {
    list_call(call, num_bytes);
  }
  const std::optional<Fault>& fault = chosen();
  if (!fault || fault->call != call || fault->rank != launched_rank() ||
      num_bytes < static_cast<std::size_t>(fault->bytes) ||
      (descriptor >= 0 && path_of(descriptor).find(fault->file) == std::string::npos)) {
    return 0;
  }
  static std::atomic<long> count = 0;
  return ++count;
}

}  // namespace

long launched_rank() {
  static const long rank = [] {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
      if (const char* value = std::getenv(name)) {
        return std::strtol(value, nullptr, 10);
      }
    }
    return 0L;
  }();
  return rank;
}

const Fault* due(const char* call, std::size_t num_bytes, int descriptor) {
  const long number = counted(call, num_bytes, descriptor);
  return number > 0 && number == chosen()->at ? &*chosen() : nullptr;
}

const Fault* due_from_then_on(const char* call, std::size_t num_bytes, int descriptor) {
  const long number = counted(call, num_bytes, descriptor);
  return number > 0 && (number == chosen()->at || (number > chosen()->at && chosen()->act == "errno")) ? &*chosen()
                                                                                                       : nullptr;
}

void act(const Fault& fault) {
  if (fault.act == "signal") {
    ::kill(::getpid(), signals().at(fault.argument));
  } else if (fault.act == "abort") {
    std::abort();
  } else if (fault.act == "exit") {
    ::_exit(static_cast<int>(fault.number));
  } else if (fault.act == "throw") {
    throw std::runtime_error("thrown by the test");
  } else if (fault.act == "bad_alloc") {
    throw std::bad_alloc();
  } else if (fault.act == "late") {
    std::this_thread::sleep_for(std::chrono::milliseconds(fault.number));
  } else if (fault.act == "hang") {
    while (true) {
      ::pause();
    }
  }
}

}  // namespace faults
