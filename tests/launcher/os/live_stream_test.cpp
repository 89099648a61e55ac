#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/os/terminal/live_display.h"
#include "tests/launcher/console.h"
#include "tests/launcher/screen_model.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;
using ddp::test::ElementsAre;
using Rows = std::vector<std::string>;

// The streams of some ranks on one terminal.
class LiveStreamTest {
 protected:
  LiveStreamTest()
      : console_(10, 40),
        screen_(10, 40),
        writer_(loop_, console_.terminal(), [] {}),
        display_(loop_, console_.terminal(), ::getpgrp(), writer_, [this](std::size_t columns) {
          std::vector<ShownRow> rows;
          for (const auto& stream : streams_) {
            for (ShownRow& row : stream->rows(columns)) rows.push_back(std::move(row));
          }
          return rows;
        }) {
    for (int i = 0; i < 2; ++i) {
      streams_.push_back(std::make_unique<LiveStream>(loop_, display_, widths_, i));
      streams_.back()->set_prefix("[" + std::to_string(i) + "] ");
    }
  }
  Rows seen() {
    screen_.feed(console_.take());
    return screen_.rows();
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = Clock::now() + 20s;
    while (!condition() && Clock::now() < limit) {
      loop_.call_at(Clock::now() + 1ms, [] {});
      loop_.run_once();
    }
    return condition();
  }
  bool sees(const Rows& rows) {
    return run_until([&] { return seen() == rows; });
  }

  EventLoop loop_;
  Console console_;
  ScreenModel screen_;
  StreamWriter writer_;
  CharacterWidth widths_;
  std::vector<std::unique_ptr<LiveStream>> streams_;  // outlived by what the display asks for
  LiveDisplay display_;
};

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: whole lines are there at once, halves when they are whole") {
  streams_[0]->feed("one\ntw");
  streams_[1]->feed("eins\n");
  CHECK_THAT(seen(), ElementsAre("[0] one", "[1] eins"));
  streams_[0]->feed("o\n");
  CHECK_THAT(seen(), ElementsAre("[0] one", "[1] eins", "[0] two"));
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: bars of several ranks stay below the lines of all") {
  streams_[0]->feed("\r10%");
  streams_[1]->feed("\r20%");
  REQUIRE(sees({"[0] 10%", "[1] 20%"}));
  streams_[1]->feed("\x1b[2K\rline\n\r30%");
  CHECK(sees({"[1] line", "[0] 10%", "[1] 30%"}));
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: a row above waits a moment for the rank, and then is a line") {
  streams_[0]->feed("\r10%\nbelow");
  REQUIRE(sees({"[0] 10%", "[0] below"}));
  streams_[1]->feed("line\n");
  // Above the line of the other it was a row; the moment is over, and it is a line that scrolls away.
  CHECK(run_until([&] {
    return seen() == Rows{"[1] line", "[0] 10%", "[0] below"} && streams_[0]->rows(40).size() == 1;
  }));
  streams_[1]->feed("next\n");
  CHECK(sees({"[1] line", "[0] 10%", "[1] next", "[0] below"}));
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: a rank that goes up again in time keeps its rows") {
  for (int i = 0; i < 30; ++i) {
    streams_[0]->feed("\router " + std::to_string(i) + "\n\rinner " + std::to_string(i) + "\x1b[A");
  }
  CHECK(sees({"[0] outer 29", "[0] inner 29"}));
  CHECK(streams_[0]->rows(40).size() == 2);
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: what it was redrawing stays when it ends, above the rows of others") {
  streams_[0]->feed("\r10%");
  streams_[1]->feed("\r20%");
  REQUIRE(sees({"[0] 10%", "[1] 20%"}));
  streams_[1]->finish();
  CHECK(sees({"[1] 20%", "[0] 10%"}));
  streams_[0]->finish();
  CHECK(sees({"[1] 20%", "[0] 10%"}));
  CHECK(streams_[0]->rows(40).empty());
}

TEST_CASE_METHOD(LiveStreamTest,
                 "LiveStream: the end of an unfinished line is shown, with no newline that was not there") {
  streams_[0]->feed("no newline");
  CHECK_THAT(seen(), ElementsAre());
  streams_[0]->finish();
  CHECK(sees({"[0] no newline"}));
  CHECK(screen_.cursor_row() == 0);
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: one that is gone while a row waits is not called any more") {
  streams_[0]->feed("\r10%\nbelow");
  streams_[0].reset();
  streams_.erase(streams_.begin());
  const auto end = Clock::now() + 120ms;
  CHECK(run_until([&] { return Clock::now() > end; }));
  CHECK_THAT(seen(), ElementsAre());
}

TEST_CASE_METHOD(LiveStreamTest, "LiveStream: bytes one by one give the picture that all at once give") {
  const std::string bytes = "plain\n\r\x1b[31m\xe4\xb8\xad 10%\x1b[0m\x1b[K\r\xe4\xb8\xad 99%\nlast \xc3\xa4";
  streams_[0]->feed(bytes);
  for (const char byte : bytes) streams_[1]->feed(std::string_view(&byte, 1));
  streams_[0]->finish();
  streams_[1]->finish();
  Rows rows;
  REQUIRE(run_until([&] { return (rows = seen()).size() == 6; }));
  Rows of[2];
  for (const std::string& row : rows) of[row[1] - '0'].push_back(row.substr(4));
  CHECK_THAT(of[0], ElementsAre("plain", "\xe4\xb8\xad 99%", "last \xc3\xa4"));
  CHECK(of[0] == of[1]);
}

}  // namespace
}  // namespace launcher
