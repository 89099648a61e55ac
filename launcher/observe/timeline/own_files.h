// The files that a job's timelines have been written to.
#pragma once

#include <string>
#include <vector>

#include "base/timeline/trace_file.h"

namespace launcher {

// As it is told to who asks, from another folder perhaps, and without links.
std::string whole_path(const std::string& file);

// trace.json -> trace.node1.json, and trace.node1.restart2.json on a node that has come later: where they come and go,
// another one may have had its number before.
std::string file_of_node(const std::string& file, int node, int restart);

class OwnFiles {
 public:
  void add(const ddp::detail::TraceFile::Identity& file) { files_.push_back(file); }
  // Whether an earlier recording would be lost by writing to `file` anew. Emptied ones are nobody's.
  bool has(const std::string& file) const;

 private:
  std::vector<ddp::detail::TraceFile::Identity> files_;
};

}  // namespace launcher
