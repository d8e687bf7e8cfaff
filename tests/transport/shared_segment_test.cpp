// Memory that processes share: its bytes, its name, and what happens without room.
#include "transport/shared_segment.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>

using metro::SharedSegment;

namespace {

bool is_there(const std::string& name) {
  return std::filesystem::exists("/dev/shm" + name);
}

}  // namespace

TEST_CASE("what one has written the other reads, also when the name is gone") {
  SharedSegment a = SharedSegment::create(10000);
  const SharedSegment b = SharedSegment::open(a.name(), 10000);

  a.remove_name();
  a.take_pages(0, 2);
  a.take_pages(1, 2);
  std::ranges::fill(a.bytes(), std::byte{7});

  CHECK_FALSE(is_there(a.name()));
  CHECK(std::ssize(b.bytes()) == 10000);
  CHECK(std::ranges::count(b.bytes(), std::byte{7}) == 10000);
}

TEST_CASE("two segments have two names, of which none is left when they end") {
  std::string first;
  std::string second;
  {
    const SharedSegment a = SharedSegment::create(1);
    const SharedSegment b = SharedSegment::create(1);
    first = a.name();
    second = b.name();
    CHECK((is_there(first) && is_there(second)));
  }

  CHECK(first != second);
  CHECK(first.size() < 64);
  CHECK_FALSE(is_there(first));
  CHECK_FALSE(is_there(second));
}

TEST_CASE("a segment that cannot be found or made says what to do") {
  metro::test::expect_error(metro::ExitCode::machine,
                            {"shm_open: No such file or directory", "set model.sharing = \"rank\""},
                            [] { SharedSegment::open("/metro.no.such", 1); });
  const metro::test::FileSizeLimit limit(4096);
  metro::test::expect_error(metro::ExitCode::machine, {"ftruncate: File too large"},
                            [] { SharedSegment::create(100000); });
}
