#include "requests/recovered_output.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace metro {

namespace {

// A file of the output as the earlier part has left it.
class EarlierFile {
 public:
  explicit EarlierFile(std::string path)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)) {
    struct stat status {};
    if (descriptor_ < 0 && errno != ENOENT) {
      fail("open");
    }
    if (descriptor_ >= 0 && ::fstat(descriptor_, &status) != 0) {
      const int reason = errno;
      ::close(descriptor_);
      errno = reason;
      fail("open");
    }
    num_bytes_ = status.st_size;
  }
  ~EarlierFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  EarlierFile(const EarlierFile&) = delete;
  EarlierFile& operator=(const EarlierFile&) = delete;

  // Whether the line of `entry` comes next, whole and unchanged; then it is passed.
  bool passes(const JournalEntry& entry) {
    if (entry.begin != num_passed_ || entry.num_bytes > num_bytes_ - num_passed_) {
      return false;
    }
    line_.resize(static_cast<std::size_t>(entry.num_bytes));
    for (std::size_t done = 0; done < line_.size();) {
      const auto at = static_cast<off_t>(entry.begin + static_cast<std::int64_t>(done));
      const ssize_t count = ::pread(descriptor_, line_.data() + done, line_.size() - done, at);
      if (count == 0) {
        return false;
      }
      if (count < 0 && errno != EINTR) {
        fail("read");
      }
      done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    if (digest_of(std::as_bytes(std::span(line_))) != entry.digest) {
      return false;
    }
    num_passed_ += entry.num_bytes;
    return true;
  }

  // Returns whether there was something to cut.
  bool cut_behind_passed() {
    if (num_bytes_ == num_passed_) {
      return false;
    }
    if (::ftruncate(descriptor_, num_passed_) != 0) {
      fail("cut");
    }
    return true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ExitCode::machine, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
  }

  std::string path_;
  int descriptor_;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_passed_ = 0;
  std::vector<char> line_;
};

}  // namespace

RecoveredOutput recover_output(const std::string& directory, LineJournal& journal) {
  const std::filesystem::path folder = directory;
  EarlierFile completions((folder / "completions.jsonl").string());
  EarlierFile errors((folder / "errors.jsonl").string());
  RecoveredOutput found;
  journal.recover([&](const JournalEntry& entry) {
    const bool completed = entry.file == OutputFile::completions;
    if (!(completed ? completions : errors).passes(entry)) {
      return false;
    }
    found.finished.add(entry.line, true);
    (completed ? found.num_completions : found.num_errors) += 1;
    return true;
  });
  const bool cut_completions = completions.cut_behind_passed();
  const bool cut_errors = errors.cut_behind_passed();
  found.was_cut = cut_completions || cut_errors;
  return found;
}

}  // namespace metro
