// A program beside this one that answers messages: started, asked, ended. A message is its length (8 bytes, little
// endian) and so many bytes; every one is answered by one. The helper has them as its standard input, which is a
// socket; what it prints goes nowhere but into messages about its end. It inherits no other descriptor, and SIGINT,
// SIGTERM and SIGUSR1 pass it by: it ends with this process, or with the object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// Why a helper does not answer.
struct HelperFailure : std::runtime_error {
  enum class Kind { not_found, not_started, ended, too_slow, not_an_answer };

  HelperFailure(Kind in_kind, const std::string& message) : std::runtime_error(message), kind(in_kind) {}
  Kind kind;
};

class HelperProcess {
 public:
  // command[0] is looked for in PATH. An answer has at most most_bytes bytes. Throws HelperFailure.
  HelperProcess(const std::vector<std::string>& command, std::int64_t most_bytes);
  // Closes the socket, which tells the helper to end; one that has not within a second is killed.
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  pid_t id() const { return id_; }

  // Waits at most patience_s seconds; time in which this process was stopped does not count. Throws HelperFailure; the
  // helper is then dead.
  std::string ask(std::string_view message, double patience_s);

 private:
  void spawn(const std::vector<std::string>& command, int their_end);
  void wait_until(short events, double& left_s);
  void send(std::string_view bytes, double& left_s);
  void receive(char* bytes, std::size_t count, double& left_s);
  [[noreturn]] void fail_at_end();
  int kill_and_reap();
  std::string last_words() const;

  std::int64_t most_bytes_;
  int socket_ = -1;
  int printed_ = -1;  // a file in memory with what it printed
  pid_t id_ = -1;
};

}  // namespace metro
