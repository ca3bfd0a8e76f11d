//! Compiles what calls of a model's layer need on a GPU that need not be here, and says what that is:
//!
//!     cargo run --example plan -- "NVIDIA H200"

use gdn_jit::{sys, text, Config, Context};

fn main() -> Result<(), gdn_jit::Error> {
    let gpu = std::env::args().nth(1).unwrap_or_else(|| "NVIDIA H200".into());
    let context = Context::new(Config::default())?;
    let target = context.target(&gpu)?;
    let desc = sys::gdn_prefill_desc {
        num_q_heads: 16,
        num_k_heads: 16,
        num_v_heads: 32,
        head_dim_qk: 128,
        head_dim_v: 128,
        max_tokens: 8192,
        max_seqs: 256,
        ..Default::default()
    };
    let said = gdn_jit::prefill_support(&target, &desc, 0)?;
    println!("{} ({}): {}: {}", text(&target.gpu_name), text(&target.arch), text(&said.kernel), text(&said.reason));
    let plan = context.plan_prefill(&target, &desc, 0)?;
    let stats = context.cache_stats()?;
    println!(
        "{} bytes of workspace; {} kernels compiled, {} from disk",
        plan.workspace_size(),
        stats.compiles,
        stats.disk_hits
    );
    Ok(())
}
