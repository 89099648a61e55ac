// Passes the ranks' standard output and error on to ddprun's own, whole lines at a time, each behind its rank's prefix.
// A slow reader slows the ranks down instead of filling memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/event_loop.h"
#include "launcher/messages.h"
#include "launcher/output/line_prefixer.h"
#include "launcher/output/prefix_template.h"
#include "launcher/output/stream_writer.h"
#include "launcher/parked_descriptors.h"
#include "launcher/unique_fd.h"
#include "launcher/worker_environment.h"

namespace launcher {

class OutputRelay : public Messages {
 public:
  OutputRelay(EventLoop& loop, const PrefixTemplate& prefix);
  ~OutputRelay() override;
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  struct RankStreams {
    UniqueFd standard_output;
    UniqueFd standard_error;
  };
  // What a rank is to write to. Close the copies here once it has been started: the end of its output is seen by that.
  RankStreams add_rank(const RankPlace& place);
  // To be called when all ranks have been added and forked; before, nothing is read.
  void start_reading();

  void say(std::string_view line) override;
  void say_block(std::string_view lines) override;

  // To be called when no process can write any more: reads what is left, and returns when all is written, nobody reads
  // it, or `give_up` says so.
  void finish(const std::function<bool()>& give_up);
  // What went wrong with ddprun's own output; empty when all was written. A reader that went away is no error.
  std::string problem() const;

 private:
  struct Source {
    int number = 0;
    RankPlace place;
    const char* stream = "";
    UniqueFd fd;
    LinePrefixer lines{""};
    StreamWriter* to = nullptr;
    bool watched = false;
  };

  Source& add_source(const RankPlace& place, const char* stream, StreamWriter& to, UniqueFd fd);
  // False when there is nothing to read now.
  bool read(Source& source);
  void watch(Source& source, bool on);
  void end(Source& source);
  void on_room();

  EventLoop& loop_;
  PrefixTemplate prefix_;
  std::string host_;
  std::unique_ptr<StreamWriter> output_;
  std::unique_ptr<StreamWriter>
      error_output_;  // null when both go to the same place: then one writer keeps lines whole
  StreamWriter* error_;
  std::vector<std::unique_ptr<Source>> sources_;
  ParkedDescriptors parked_;
  std::unique_ptr<char[]> scratch_;  // not touched before the first read: ranks are forked with less to copy
  bool problem_said_ = false;
};

}  // namespace launcher
