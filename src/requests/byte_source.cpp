// Files, pipes and standard input as they are, and the choice of what unpacks them.
#include "requests/byte_source.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

namespace metro {

namespace {

class DescriptorSource : public ByteSource {
 public:
  explicit DescriptorSource(const std::string& path)
      // Not blocking: else to open a named pipe would wait for its other end.
      : is_own_(path != standard_input),
        descriptor_(is_own_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) : STDIN_FILENO) {
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
      const std::string reason = std::strerror(errno);
      close();  // the destructor does not run when the constructor throws
      throw SourceError(reason);
    }
    if (S_ISDIR(status.st_mode)) {
      close();
      throw SourceError("it is a folder");
    }
    is_live_ = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode);
  }
  ~DescriptorSource() override { close(); }
  DescriptorSource(const DescriptorSource&) = delete;
  DescriptorSource& operator=(const DescriptorSource&) = delete;

  std::optional<std::size_t> read(std::span<char> room, double patience_s) override {
    ssize_t count = 0;
    do {
      if (is_live_ && !has_data(patience_s)) {
        return std::nullopt;
      }
      count = ::read(descriptor_, room.data(), room.size());
    } while (count < 0 && (errno == EINTR || errno == EAGAIN));
    if (count < 0) {
      throw SourceError(std::strerror(errno));
    }
    return static_cast<std::size_t>(count);
  }

 private:
  bool has_data(double patience_s) const {
    pollfd waited{descriptor_, POLLIN, 0};
    const int patience_ms =
        patience_s == for_ever_s ? -1 : static_cast<int>(std::clamp(std::ceil(1e3 * patience_s), 0.0, 1e9));
    int count = 0;
    do {
      count = ::poll(&waited, 1, patience_ms);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      throw SourceError(std::strerror(errno));
    }
    return count > 0;  // or the end, or an error that read() will name
  }

  void close() {
    if (is_own_ && descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }

  bool is_own_;
  int descriptor_;
  bool is_live_ = false;
};

using Magic = std::string_view;

constexpr Magic gzip_magic = "\x1f\x8b";
constexpr Magic zstd_magic = "\x28\xb5\x2f\xfd";
constexpr Magic zstd_skippable_magic = "\x2a\x4d\x18";  // behind one byte from 0x50 to 0x5f: a frame without content
constexpr std::size_t longest_magic = 4;

enum class Packing { undecided, none, gzip, zstd };

// What the first bytes of a file say; undecided as long as they may be the beginning of a longer magic number.
Packing packing_of(std::string_view head) {
  const auto begins = [&](Magic magic) { return head.starts_with(magic); };
  const auto may_begin = [&](Magic magic) { return magic.starts_with(head); };
  const bool skippable = !head.empty() && (static_cast<unsigned char>(head[0]) & 0xf0U) == 0x50U;
  const std::string_view behind = head.substr(std::min<std::size_t>(head.size(), 1));
  if (begins(gzip_magic)) {
    return Packing::gzip;
  }
  if (begins(zstd_magic) || (skippable && behind.starts_with(zstd_skippable_magic))) {
    return Packing::zstd;
  }
  const bool open =
      may_begin(gzip_magic) || may_begin(zstd_magic) || (skippable && zstd_skippable_magic.starts_with(behind));
  return open ? Packing::undecided : Packing::none;
}

// Bytes that were read to look at them, then the rest.
class PrefixedSource : public ByteSource {
 public:
  PrefixedSource(std::string head, std::unique_ptr<ByteSource> rest) : head_(std::move(head)), rest_(std::move(rest)) {}

  std::optional<std::size_t> read(std::span<char> room, double patience_s) override {
    if (begin_ == head_.size()) {
      return rest_->read(room, patience_s);
    }
    const std::size_t count = head_.copy(room.data(), room.size(), begin_);
    begin_ += count;
    return count;
  }

 private:
  std::string head_;
  std::size_t begin_ = 0;
  std::unique_ptr<ByteSource> rest_;
};

// Looks at the first bytes when they are there, and then is the source that unpacks them.
class DetectingSource : public ByteSource {
 public:
  explicit DetectingSource(std::unique_ptr<ByteSource> raw) : raw_(std::move(raw)) {}

  std::optional<std::size_t> read(std::span<char> room, double patience_s) override {
    while (!content_) {
      std::array<char, longest_magic> bytes{};
      const auto count = raw_->read(std::span(bytes).first(longest_magic - head_.size()), patience_s);
      if (!count) {
        return std::nullopt;
      }
      head_.append(bytes.data(), *count);
      const Packing packing = packing_of(head_);
      if (packing != Packing::undecided || *count == 0) {
        unpack(packing);
      }
    }
    return content_->read(room, patience_s);
  }

 private:
  void unpack(Packing packing) {
    content_ = std::make_unique<PrefixedSource>(std::move(head_), std::move(raw_));
    if (packing == Packing::gzip) {
      content_ = make_gzip_source(std::move(content_));
    } else if (packing == Packing::zstd) {
      content_ = make_zstd_source(std::move(content_));
    }
  }

  std::unique_ptr<ByteSource> raw_;
  std::string head_;
  std::unique_ptr<ByteSource> content_;
};

}  // namespace

void require_readable(const std::string& path) {
  struct stat status {};
  if (path == standard_input) {
    return;
  }
  if (::stat(path.c_str(), &status) != 0) {
    throw SourceError(std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    throw SourceError("it is a folder");
  }
  if (::access(path.c_str(), R_OK) != 0) {
    throw SourceError(std::strerror(errno));
  }
}

std::unique_ptr<ByteSource> open_source(const std::string& path) {
  return std::make_unique<DetectingSource>(std::make_unique<DescriptorSource>(path));
}

}  // namespace metro
