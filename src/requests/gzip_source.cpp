// gzip data (RFC 1952): one or more members, one behind the other.
#include "requests/byte_source.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace metro {

namespace {

constexpr std::size_t buffer_bytes = 1 << 17;
constexpr int gzip_only = 15 + 16;  // the largest window, and the gzip header instead of zlib's

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> packed) : packed_(std::move(packed)), buffer_(buffer_bytes) {
    if (::inflateInit2(&stream_, gzip_only) != Z_OK) {
      throw SourceError("zlib cannot be started: out of memory");
    }
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::optional<std::size_t> read(std::span<char> room, double patience_s) override {
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(room.size(), 1 << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0 && !has_more_output_) {
        const auto count = packed_->read(buffer_, patience_s);
        if (!count) {
          return std::nullopt;
        }
        if (*count == 0) {
          require_end();
          return 0;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
        stream_.avail_in = static_cast<uInt>(*count);
      }
      step();
    }
    return wanted - stream_.avail_out;
  }

 private:
  void require_end() const {
    if (in_member_) {
      throw SourceError(fmt::format("the gzip data end too early, after byte {} of the file", position_));
    }
  }

  void step() {
    if (!in_member_ && ::inflateReset(&stream_) != Z_OK) {
      throw SourceError("zlib cannot be started again");
    }
    in_member_ = true;
    const uInt before = stream_.avail_in;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    position_ += before - stream_.avail_in;
    has_more_output_ = code != Z_STREAM_END && stream_.avail_out == 0;
    if (code == Z_STREAM_END) {
      in_member_ = false;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      const char* reason = code == Z_MEM_ERROR ? "out of memory" : stream_.msg != nullptr ? stream_.msg : "unknown";
      throw SourceError(
          fmt::format("the gzip data are damaged at or before byte {} of the file ({})", position_, reason));
    }
  }

  std::unique_ptr<ByteSource> packed_;
  std::vector<char> buffer_;
  z_stream stream_{};
  std::int64_t position_ = 0;  // bytes of the file that zlib has taken
  bool in_member_ = true;
  bool has_more_output_ = false;  // zlib may hold unpacked bytes for which there was no room
};

}  // namespace

std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<GzipSource>(std::move(packed));
}

}  // namespace metro
