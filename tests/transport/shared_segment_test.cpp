// Memory that processes share: its bytes, its name, and what happens without room.
#include "transport/shared_segment.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>
#include <algorithm>

using metro::SharedSegment;

TEST_CASE("what one has written the other reads, also when the first is gone") {
  const auto with_both = [](const auto& use) {
    SharedSegment a = SharedSegment::create(10000);
    a.take_pages(0, 2);
    a.take_pages(1, 2);
    SharedSegment b = SharedSegment::open(a.address(), 10000);
    std::ranges::fill(a.bytes(), std::byte{7});
    use(a, b);
    return b;
  };
  std::byte* elsewhere = nullptr;

  const SharedSegment left = with_both([&](const SharedSegment& a, const SharedSegment& b) {
    elsewhere = a.bytes().data();
    CHECK(a.bytes().data() != b.bytes().data());
  });

  CHECK(elsewhere != left.bytes().data());
  CHECK(std::ssize(left.bytes()) == 10000);
  CHECK(std::ranges::count(left.bytes(), std::byte{7}) == 10000);
}

TEST_CASE("a segment has a file without a name") {
  const SharedSegment segment = SharedSegment::create(1);
  const std::string link = "/proc/self/fd/" + std::to_string(segment.address().file);
  std::string path(4096, '\0');

  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  REQUIRE(length > 0);
  path.resize(static_cast<std::size_t>(length));

  CHECK(path.find("/dev/shm/") == 0);
  CHECK(path.find(" (deleted)") != std::string::npos);
}

TEST_CASE("a segment that cannot be found, is another or has no room says what to do") {
  const SharedSegment segment = SharedSegment::create(1);
  SharedSegment::Address closed = segment.address();
  closed.file = 100000;
  SharedSegment::Address other = segment.address();
  ++other.inode;
  const auto expect = [](std::initializer_list<const char*> texts, const auto& work) {
    metro::test::expect_error(metro::ExitCode::machine, texts, work);
  };

  expect({"/fd/100000: No such file or directory", "set model.sharing = \"rank\""},
         [&] { SharedSegment::open(closed, 1); });
  expect({"Stale file handle"}, [&] { SharedSegment::open(other, 1); });
  expect({"Stale file handle"}, [&] { SharedSegment::open(segment.address(), 100000); });
  const metro::test::FileSizeLimit limit(4096);
  expect({"ftruncate: File too large"}, [] { SharedSegment::create(100000); });
}
