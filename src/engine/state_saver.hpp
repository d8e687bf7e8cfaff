// When and what is saved of a running job, so that a later one goes on. Rank 0 only: it knows the tokens of all ranks,
// so the others have nothing to agree on with it.
#pragma once

#include "engine/request_feed.hpp"
#include "requests/scheduler.hpp"
#include "resume/run_folder.hpp"

namespace metro {

class StateSaver {
 public:
  // All must outlive it. every_s: seconds between two times; 0: only at a stop.
  StateSaver(RunFolder& folder, RequestFeed& feed, const Scheduler& scheduler, double every_s)
      : folder_(&folder), feed_(&feed), scheduler_(&scheduler), every_s_(every_s) {}

  // now_s never falls. Between two steps, both. Throw as RunFolder::save().
  void save_if_due(double now_s) {
    if (every_s_ > 0.0 && now_s - last_s_ >= every_s_) {
      save();
      last_s_ = now_s;
    }
  }
  void save() { folder_->save(feed_->unfinished(*scheduler_)); }

 private:
  RunFolder* folder_;
  RequestFeed* feed_;
  const Scheduler* scheduler_;
  double every_s_;
  double last_s_ = 0.0;
};

}  // namespace metro
