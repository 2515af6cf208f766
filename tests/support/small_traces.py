"""Small files in the formats of public traces, and what every import of a trace satisfies."""

import gzip
from itertools import pairwise
from pathlib import Path

from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.request import ImportRequest

REAL = Path(__file__).parents[2].parent / "shared" / "data"
AZURE = "azure_functions_2019/dirigent500_invocations.csv.gz"
DURATIONS = "azure_functions_2019/dirigent500_durations.csv.gz"
MEMORY = "azure_functions_2019/dirigent500_memory.csv.gz"
AZURE_1000 = "azure_functions_2019/invitro1000_inv.csv.gz"
DURATIONS_1000 = "azure_functions_2019/invitro1000_run.csv.gz"
MEMORY_1000 = "azure_functions_2019/invitro1000_mem.csv.gz"
HELIOS = "helios_earth_vc/earth_vc_gpu_demand_1min_2020-05.csv.gz"
CODE = "azure_llm_2023/AzureLLMInferenceTrace_code.csv"
CONV = "azure_llm_2023/AzureLLMInferenceTrace_conv.csv"
CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
SYNTHETIC = "mooncake/synthetic_trace.jsonl.gz"
PHILLY = "philly_jobs/philly_jobs.csv.gz"
PHILLY_LOG = "philly_jobs/cluster_job_log"
HELIOS_LOG = "helios/Earth/cluster_log.csv"
SERVEGEN = "servegen_clients/servegen_client_rates.csv.gz"
MQFQ = "function_profiles/mqfq_v100_table.csv"
TIMM = "function_profiles/timm/benchmark-infer-amp-nchw-pt240-cu124-{}.csv"
LLM_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
TIMM_HEADER = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs,infer_macts\n"
)
DAY = "azure_functions_2019/{}.anon.d01.csv"
SMALL = {
    AZURE: (
        "HashOwner,HashApp,HashFunction,Trigger,480,481,482\n"
        "aaaaaaaa1,app1,ffffff01,http,2,0,1\n"
        "aaaaaaaa1,app2,ffffff02,queue,0,300,0\n"
        "bbbbbbbb1,app3,eeeeee01,timer,0,0,0\n"
        "aaaaaaaa2,app4,dddddd01,http,1,1,1\n"
    ),
    DURATIONS: (
        "HashOwner,HashApp,HashFunction,Average,Count,percentile_Average_0,percentile_Average_1,percentile_Average_25,"
        "percentile_Average_50,percentile_Average_75,percentile_Average_99,percentile_Average_100\n"
        "aaaaaaaa1,app2,ffffff02,300,9,100,100,200,300,400,500,500\n"
        "aaaaaaaa1,app1,ffffff01,0,9,0,0,0,0,0,0,0\n"
        "aaaaaaaa2,app4,dddddd01,2500,9,2500,2500,2500,2500,2500,2500,2500\n"
    ),
    MEMORY: (
        "HashFunction,HashOwner,HashApp,SampleCount,AverageAllocatedMb_pct50,AverageAllocatedMb_pct99\n"
        "ffffff01,aaaaaaaa1,app1,3,512.0,600.0\n"
        "ffffff02,aaaaaaaa1,app2,3,1024.0,1100.0\n"
        "dddddd01,aaaaaaaa2,app4,3,0.5,1.0\n"
    ),
    DAY.format("invocations_per_function_md"): (
        "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n"
        "aaaaaaaa1,app1,ffffff01,http,2,0,1\n"
        "aaaaaaaa2,app2,ffffff01,queue,0,3,0\n"
        "aaaaaaaa2,app3,eeeeee01,timer,1,0,0\n"
    ),
    DAY.format("function_durations_percentiles"): (
        "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,percentile_Average_0,percentile_Average_1,"
        "percentile_Average_25,percentile_Average_50,percentile_Average_75,percentile_Average_99,"
        "percentile_Average_100\n"
        "aaaaaaaa1,app1,ffffff01,300,9,100,500,100,100,200,300,400,500,500\n"
        "aaaaaaaa2,app2,ffffff01,1000,9,1000,1000,1000,1000,1000,1000,1000,1000,1000\n"
        "aaaaaaaa2,app3,eeeeee01,1000,9,1000,1000,1000,1000,1000,1000,1000,1000,1000\n"
    ),
    DAY.format("app_memory_percentiles"): (
        "HashOwner,HashApp,SampleCount,AverageAllocatedMb,AverageAllocatedMb_pct50\n"
        "aaaaaaaa1,app1,3,500,512\n"
        "aaaaaaaa2,app2,3,1000,1024\n"
    ),
    AZURE_1000: (
        "HashFunction,HashApp,HashOwner,minute_1,minute_2,minute_3\n"
        "ffffff01,ffffff01,ffffff01,2,0,1\n"
        "ffffff02,ffffff02,ffffff02,0,3,0\n"
    ),
    DURATIONS_1000: (
        "HashFunction,HashApp,HashOwner,Count,Average,Minimum,Maximum,percentile_Average_0,percentile_Average_1,"
        "percentile_Average_25,percentile_Average_50,percentile_Average_75,percentile_Average_99,"
        "percentile_Average_100\n"
        "ffffff02,ffffff02,ffffff02,9,300,100,500,100,100,200,300,400,500,500\n"
        "ffffff01,ffffff01,ffffff01,9,1000,1000,1000,1000,1000,1000,1000,1000,1000,1000\n"
    ),
    MEMORY_1000: (
        "HashApp,HashOwner,SampleCount,AverageAllocatedMb,AverageAllocatedMb_pct50\n"
        "ffffff01,ffffff01,3,500,512\n"
        "ffffff02,ffffff02,3,1000,1024\n"
    ),
    HELIOS: (
        "vc,minute,total_gpu_num,running_gpu_num,pending_gpu_num,running_gpujob_num,pending_gpujob_num,gpu_utilization\n"
        "vcA,0,64,8,0,1,0,0.125\n"
        "vcA,1,64,24,0,3,0,0.375\n"
        "vcA,2,64,16,0,2,0,0.25\n"
        "vcA,3,64,8,0,1,0,0.125\n"
        "vcB,0,8,0,0,0,0,0\n"
        "vcB,1,8,1,0,1,0,0.125\n"
        "vcB,2,8,1,0,1,0,0.125\n"
        "vcB,3,8,0,0,0,0,0\n"
    ),
    CODE: LLM_HEADER + "2023-11-16 18:17:03.0000000,1000,10\r\n2023-11-16 18:17:05.5000001,2000,30",
    CONV: LLM_HEADER + "2023-11-16 18:17:01.9799600,100,100\r\n",
    CONVERSATION: (
        '{"timestamp": 0, "input_length": 5000, "output_length": 50, "hash_ids": [0, 1]}\n'
        '{"timestamp": 27000, "input_length": 0, "output_length": 1, "hash_ids": []}\n'
    ),
    SYNTHETIC: '\n{"timestamp": 1500, "input_length": 10, "output_length": 0, "hash_ids": []}\n',
    PHILLY: (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,b\n"
        "2017-10-09 06:00:00,10.0,8,80.0,a\n"
        "2017-10-09 07:01:45,100.0,1,100.0,a\n"
        "2017-10-09 08:01:45,200.0,1,200.0,a\n\n"
    ),
    PHILLY_LOG: (
        '[{"status": "Pass", "vc": "b", "jobid": "j1", "user": "u", "submitted_time": "2017-10-09 07:01:55", '
        '"attempts": [{"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 07:02:10", "detail": '
        '[{"ip": "m1", "gpus": ["gpu0"]}]}, {"start_time": "2017-10-09 07:02:20", "end_time": "2017-10-09 07:03:06", '
        '"detail": []}]},\n'
        ' {"status": "Pass", "vc": "a", "jobid": "j2", "user": "u", "submitted_time": "2017-10-09 07:01:45", '
        '"attempts": [{"start_time": "2017-10-09 07:01:45", "end_time": "2017-10-09 07:03:25", "detail": '
        '[{"ip": "m1", "gpus": ["gpu0"]}]}]},\n'
        ' {"status": "Killed", "vc": "a", "jobid": "j3", "user": "u", "submitted_time": "2017-10-09 06:00:00", '
        '"attempts": []},\n'
        ' {"status": "Killed", "vc": "a", "jobid": "j4", "user": "u", "submitted_time": "2017-10-09 06:00:00", '
        '"attempts": [{"start_time": "2017-10-09 07:01:45", "end_time": "None", "detail": [{"ip": "m1", "gpus": '
        '["gpu0"]}]}]},\n'
        ' {"status": "Pass", "vc": "a", "jobid": "j5", "user": "u", "submitted_time": "2017-10-09 06:00:00", '
        '"attempts": [{"start_time": "2017-10-09 07:01:45", "end_time": "2017-10-09 07:03:25", "detail": [{"ip": "m1", '
        '"gpus": ["gpu0", "gpu1"]}]}]}]\n'
    ),
    HELIOS_LOG: (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:31,2020-06-09 18:42:31,60,30\n"
        "2,u2,vcB,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        "3,u2,vcB,0,16,1,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        "4,u3,vcB,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:38,10,0\n"
    ),
    SERVEGEN: (
        "model,client,t_s,rate_rps,cv,dist,p1,p2\n"
        "m-small,0,0,0.0,0.0,,0.0,0.0\n"
        "m-small,0,300,0.5,2.0,Gamma,0.25,8.0\n"
        "m-small,0,600,0.0,0.0,,0.0,0.0\n"
        "deepseek-r1,7,0,0.1,1.5,Weibull,0.7,7.9\n"
        "deepseek-r1,7,300,0.2,1.0,,0.0,0.0\n"
        "mm-image,1,0,0.0,0.0,,0.0,0.0\n"
    ),
    MQFQ: (
        "function,suite,gpu_warm_s,cpu_warm_s,gpu_cold_s,cold_container_no_gpu_s,in_published_table\n"
        "imagenet,ML,2.253,5.477,8.581,6.907,1\n"
        "myocyte,Rodinia,2.784,39.277,2.145,0.980,1\n"
        "rnn,ML,0.366,0.048,4.284,3.776,0\n"
    ),
    TIMM.format("rtx3090"): (
        TIMM_HEADER + "tiny,224,1024,1,1024,100,1,2\n"
        "tiny,160,2048,1,1024,100,1,1\n"
        "huge,224,10,1,64,100,1,300\n"
        "blank,224,10,1,64,100,,\n"
        "only-here,224,10,1,64,100,1,1\n"
    ),
    TIMM.format("rtx4090"): (
        TIMM_HEADER + "tiny,160,4096,1,1024,100,1,1\n"
        "tiny,224,3072,1,1024,100,1,2\n"
        "huge,224,20,1,64,100,1,300\n"
        "blank,224,20,1,64,100,,\n"
    ),
}


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def take(kind, data, **options):
    """Import a trace and return its functions and a list of arrivals."""
    imported = IMPORTERS[kind](ImportRequest(data, **options))
    return imported.functions, list(imported.arrivals)


def check(kind, data, **options):
    """Check the properties of every import."""
    functions, arrivals = take(kind, data, **options)
    assert arrivals[0].time_s == 0
    assert all(one.time_s <= other.time_s for one, other in pairwise(arrivals))
    assert {arrival.function for arrival in arrivals} <= set(functions)
    assert all(name == function.name for name, function in functions.items())
    return functions, arrivals
